"""X prefill and Y decode stub engines behind mooncake_proxy, with the store and without."""
