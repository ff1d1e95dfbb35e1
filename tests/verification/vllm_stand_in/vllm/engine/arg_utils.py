class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model")
        parser.add_argument("--dtype")
        parser.add_argument("--max-num-seqs", type=int)
        parser.add_argument("--max-num-batched-tokens", type=int)
        parser.add_argument("--block-size", type=int)
        parser.add_argument("--num-gpu-blocks-override", type=int)
        parser.add_argument("--no-async-scheduling", action="store_true")
        parser.add_argument("--skip-tokenizer-init", action="store_true")
        parser.add_argument("--disable-log-stats", action="store_true")
        return parser

    @staticmethod
    def from_cli_args(found):
        return found
