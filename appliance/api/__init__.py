"""The HTTP interface: OpenAI's routes, llama-server's, and the operator's."""
