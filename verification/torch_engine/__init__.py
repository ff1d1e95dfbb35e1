"""A small continuous-batching engine on PyTorch, to measure where no other can be installed.

``scheduler`` says who gets how many tokens (vLLM's rules), ``block_pool`` who holds which blocks,
``decoder`` is the model, ``attention`` reads the paged cache, ``runner`` makes tensors of a batch,
``engine`` puts them together. Only ``runner``, ``decoder``, ``attention``, ``weights`` and
``decode_graphs`` touch PyTorch, and only when they run.
"""
