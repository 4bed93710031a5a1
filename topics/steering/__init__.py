"""Which LLM worker takes a request: block keys, views of workers, policies. Pure: no client, no clock, no await."""
