"""The XpYd proxy: one address before X prefill and Y decode instances of an OpenAI-compatible engine."""
