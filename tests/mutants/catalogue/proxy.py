"""Bugs of the proxy: two phases, health, and what goes from one connection to another."""

from mutants.planted import Edit, Mutant, drawn, test

RELAY = "proxy/mooncake_proxy/relay.py"

MUTANTS = [
    Mutant(
        "prefill-keeps-min-tokens",
        "The prefill copy asks for one token and for at least five: engines refuse it.",
        (
            Edit(
                "proxy/mooncake_proxy/bodies.py",
                '*("stream_options", "min_tokens"),',
                '*("stream_options",),',
            ),
        ),
        (test("proxy/test_relay", "test_prompt_is_prefilled_for_one_token_then_decoded_as_asked"),),
    ),
    Mutant(
        "broken-stream-ends-well",
        "The answer of an instance that dies midway ends in order: half of it looks whole.",
        (
            Edit(
                RELAY,
                "                pass\n        _cut(request)\n        return response",
                "                pass\n        return response",
            ),
        ),
        (test("proxy/test_relay", "test_a_stream_that_dies_is_broken_for_the_client_too"),),
    ),
    Mutant(
        "client-that-leaves-is-not-missed",
        "Engines go on for clients that have gone.",
        (
            Edit(
                "proxy/mooncake_proxy/daemon.py",
                "handler_cancellation=True,",
                "handler_cancellation=False,",
            ),
        ),
        (test("proxy/test_relay", "test_client_that_leaves_ends_the_request_at_the_engine"),),
    ),
    Mutant(
        "cookies-are-kept",
        "The pooled session keeps cookies: one client's goes to the engine with the next one's request.",
        (
            Edit(
                "proxy/mooncake_proxy/upstream.py",
                "        cookie_jar=aiohttp.DummyCookieJar(),\n",
                "",
            ),
        ),
        (test("proxy/test_relay", "test_headers_that_go_on_and_those_that_do_not"),),
    ),
    Mutant(
        "admin-key-by-its-beginning",
        "A key is right when the given one begins with it.",
        (
            Edit(
                "proxy/mooncake_proxy/admin.py",
                'hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._key)',
                "given.encode().startswith(self._key)",
            ),
        ),
        (test("proxy/test_instances", "test_changes_need_the_key"),),
    ),
    Mutant(
        "without-admin-key-all-may",
        "An unset ADMIN_API_KEY is one that the empty header equals.",
        (Edit("proxy/mooncake_proxy/admin.py", "        if not self._key:\n", "        if False:\n"),),
        (test("proxy/test_instances", "test_without_a_key_in_the_environment_nothing_is_changed"),),
    ),
    Mutant(
        "unwell-instances-are-asked",
        "What probes find does not keep requests away.",
        (
            Edit(
                "proxy/mooncake_proxy/fleet.py",
                "            if instance.is_well\n            and instance.running < most",
                "            if instance.running < most",
            ),
        ),
        (test("proxy/test_instances", "test_unhealthy_instance_takes_no_requests_until_it_says_otherwise"),),
    ),
    Mutant(
        "body-bytes-are-never-let-go",
        "The room of bodies only shrinks: after a gigabyte of requests all are refused.",
        (
            Edit(
                RELAY,
                "                self._admission.let_go(held)\n",
                "                pass\n",
            ),
        ),
        (
            test("proxy/test_hostile", "test_bodies_are_bounded_together_until_their_answers_begin"),
            test("proxy/test_hostile", "test_a_body_above_the_bound_is_413"),
        ),
    ),
    Mutant(
        "inflated-bodies-are-not-measured",
        "Only the announced length is held against the bound, and a compressed body's is small.",
        (
            Edit(
                RELAY,
                "            if size > most:  # what was compressed shows its length only now\n",
                "            if False:\n",
            ),
        ),
        (test("proxy/test_hostile", "test_a_body_above_the_bound_is_413"),),
    ),
    Mutant(
        "prefill-fails-the-request",
        "A prefill instance that answers 500 makes the answer 500.",
        (
            Edit(
                RELAY,
                '        self._metrics.prefills["failed"].inc()\n        return None',
                '        self._metrics.prefills["failed"].inc()\n'
                '        raise Refusal(502, "no prefill", reason="bad_gateway")',
            ),
        ),
        (test("proxy/test_relay", "test_a_request_is_never_failed_by_prefill"),),
    ),
    Mutant(
        "clients-name-where-blocks-lie",
        "A client's own kv_transfer_params go on, and engines fetch from hosts of its choice.",
        (Edit("proxy/mooncake_proxy/bodies.py", "    if KV_TRANSFER in fields:\n", "    if False:\n"),),
        (test("proxy/test_hostile", "test_a_body_that_is_no_request_is_400"),),
    ),
    Mutant(
        "hot-prefix-overloads",
        "A prefix stays where it was, whatever the load there.",
        (
            Edit(
                "proxy/mooncake_proxy/scheduling.py",
                "if instance.running < most]",
                "if instance.running < most * 1_000]",
            ),
        ),
        (
            drawn("proxy/test_prefixes", "test_nobody_gets_more_than_the_bound_of_the_mean"),
            test("proxy/test_prefixes", "test_a_hot_prefix_spreads_and_its_second_place_is_remembered"),
        ),
    ),
    Mutant(
        "chunks-not-chained",
        "A chunk's hash leaves out what came before it: equal middles of other prompts match.",
        (
            Edit(
                "proxy/mooncake_proxy/prefixes.py",
                "blake2b(previous + text[start : start + CHUNK_BYTES], digest_size=16)",
                "blake2b(text[start : start + CHUNK_BYTES], digest_size=16)",
            ),
        ),
        (
            test("proxy/test_prefixes", "test_a_chunk_counts_with_all_before_it"),
            test("proxy/test_prefixes", "test_who_must_not_share_has_other_hashes"),
        ),
    ),
    Mutant(
        "affinity-table-grows",
        "The table forgets nothing.",
        (
            Edit(
                "proxy/mooncake_proxy/prefixes.py",
                "        while len(self._holders) > self._entries_max:\n",
                "        while False:\n",
            ),
        ),
        (test("proxy/test_prefixes", "test_the_table_is_bounded_and_keeps_what_was_used_last"),),
    ),
]
