"""The pools. One loop, many handlers; engines/ is the only place for torch and vLLM."""
