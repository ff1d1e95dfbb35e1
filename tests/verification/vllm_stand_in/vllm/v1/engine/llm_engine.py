"""An engine that computes a whole prompt in a step, then a token a step, all requests at once."""

import os
import sys
from types import SimpleNamespace as Bag


class LLMEngine:
    @classmethod
    def from_engine_args(cls, args):
        print("loading", args.model, args.dtype)
        if args.model == "no-such-model":
            raise ValueError("no such model here")
        return cls(args)

    def __init__(self, args):
        assert args.skip_tokenizer_init
        self.requests = {}
        self.vllm_config = Bag(
            cache_config=Bag(
                num_gpu_blocks=args.num_gpu_blocks_override, block_size=args.block_size
            ),
            scheduler_config=Bag(
                max_num_seqs=args.max_num_seqs,
                max_num_batched_tokens=args.max_num_batched_tokens,
                async_scheduling=not args.no_async_scheduling,
            ),
        )
        self.engine_core = Bag(engine_core=Bag(scheduler=Bag(schedule=self._schedule)))

    def add_request(self, name, prompt, parameters):
        assert parameters.ignore_eos
        tokens = prompt["prompt_token_ids"]
        if tokens[0] == 13:
            print("unlucky", file=sys.stderr, flush=True)
            os._exit(3)
        self.requests[f"{name}-0a1b"] = Bag(
            name=name, prompt=len(tokens), computed=0, left=parameters.max_tokens
        )

    def _schedule(self):
        new, old, tokens = [], {}, {}
        for name, request in self.requests.items():
            if request.computed:
                old[name], tokens[name] = request.computed, 1
            else:
                new.append(Bag(req_id=name, num_computed_tokens=0))
                tokens[name] = request.prompt
        cached = Bag(req_ids=list(old), num_computed_tokens=list(old.values()))
        return Bag(
            scheduled_new_reqs=new,
            scheduled_cached_reqs=cached,
            num_scheduled_tokens=tokens,
            preempted_req_ids=set(),
        )

    def step(self):
        output = self.engine_core.engine_core.scheduler.schedule()
        found = []
        for name, count in output.num_scheduled_tokens.items():
            request = self.requests[name]
            request.computed += count
            request.left -= 1
            is_last = request.left == 0
            answer = Bag(token_ids=[7])
            found.append(Bag(request_id=request.name, outputs=[answer], finished=is_last))
            if is_last:
                del self.requests[name]
        return found

    def reset_prefix_cache(self):
        return not self.requests
