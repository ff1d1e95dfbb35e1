"""KV cache below the GPU's memory: what lies where, the links to it, and engines that use it."""
