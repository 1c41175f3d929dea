"""Bugs of who goes when there is too much, and of where values are placed."""

from mutants.planted import Edit, Mutant, drawn, test

MODEL = drawn("metadata/test_model", "TestModel")

MUTANTS = [
    # -- eviction
    Mutant(
        "leased-goes-before-unleased",
        "Eviction takes the least recently used value whether somebody leased it or not.",
        (
            Edit(
                "native/metadata/eviction_order.cc",
                "        if (object != nullptr && object->stamp == top.rank && object->kept_until_ms() <= now_ms) {\n"
                "            if (released",
                "        if (object != nullptr && object->stamp == top.rank) {\n            if (released",
            ),
        ),
        (test("metadata/test_eviction", "test_unleased_goes_before_leased_however_young"), MODEL),
    ),
    Mutant(
        "recency-of-the-commit",
        "An entry of the eviction order keeps the place it got at the commit, whatever was read since.",
        (
            Edit(
                "native/metadata/eviction_order.cc",
                "        } else if (object->stamp != top.rank) {\n            place(top.entry, object->stamp);",
                "        } else if (object->stamp != top.rank) {\n"
                "            return Victim{top.entry.ref, top.rank};",
            ),
        ),
        (test("metadata/test_eviction", "test_access_after_an_eviction_has_begun_counts_too"), MODEL),
    ),
    Mutant(
        "hard-pinned-is-evicted",
        "A hard-pinned value waits in the eviction order like any other.",
        (
            Edit(
                "native/metadata/replicas.cc",
                "    if (object.has(kHardPin) || object.has(kGuarded) || !segment.is_mounted()) return nullptr;",
                "    if (object.has(kGuarded) || !segment.is_mounted()) return nullptr;",
            ),
        ),
        (test("metadata/test_eviction", "test_hard_pinned_never_goes"), MODEL),
    ),
    Mutant(
        "soft-pin-ignored",
        "A soft-pinned value waits in the order of those without a pin.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "    if ((request.options.flags & wire::kPutSoftPin) != 0) put.pins = kSoftPin;\n",
                "",
            ),
        ),
        (test("metadata/test_eviction", "test_soft_pinned_goes_last_even_after_leased"),),
    ),
    Mutant(
        "watermark-takes-soft-pinned-too-early",
        "A round at the watermark goes on to soft-pinned values while others, leased now, remain.",
        (
            Edit(
                "native/metadata/eviction.cc",
                "may_take_pinned && options_.evict_soft_pinned && only_pinned;",
                "may_take_pinned && options_.evict_soft_pinned;",
            ),
        ),
        (test("metadata/test_eviction", "test_watermark_round_leaves_soft_pinned_while_others_are_leased"),),
    ),
    Mutant(
        "watermark-waits-for-a-tick",
        "A put that crosses the watermark leaves the round to the next tick.",
        (
            Edit(
                "native/metadata/machine.cc",
                "    if (state.verb == wire::Verb::kPutStart) relieve(effects);",
                "    if (state.verb == wire::Verb::kPutStart && now_ms_ == 0) relieve(effects);",
            ),
        ),
        (test("metadata/test_eviction", "test_a_put_that_crosses_the_watermark_begins_the_round_itself"),),
    ),
    Mutant(
        "watermark-evicts-too-little",
        "A round at the watermark aims at the watermark itself and not below it.",
        (
            Edit(
                "native/metadata/eviction.cc",
                "                             options_.eviction_high_watermark_ratio + options_.eviction_ratio;\n"
                "        round_left_bytes_ =\n"
                "            static_cast<std::uint64_t>(std::max(options_.eviction_ratio, above) * capacity) + 1;",
                "                             options_.eviction_high_watermark_ratio;\n"
                "        round_left_bytes_ = static_cast<std::uint64_t>(above * capacity) + 1;",
            ),
        ),
        (test("metadata/test_eviction", "test_watermark_round_frees_what_it_aims_at"), MODEL),
    ),
    Mutant(
        "watermark-evicts-too-much",
        "A round at the watermark does not count what it has freed: it goes on until nothing is left.",
        (
            Edit(
                "native/metadata/eviction.cc",
                "            round_left_bytes_ -= std::min(bytes, round_left_bytes_);",
                "            round_left_bytes_ -= std::min<std::uint64_t>(1, round_left_bytes_);",
            ),
        ),
        (test("metadata/test_eviction", "test_watermark_round_frees_what_it_aims_at"), MODEL),
    ),
    Mutant(
        "retiring-bytes-evicted-twice",
        "A put that lacks room evicts for itself although retirements under way will give it.",
        (
            Edit(
                "native/metadata/placement.cc",
                "        if (segment.will_fit(bytes)) {\n            promise(index, bytes, waiting);\n"
                "            return Room::kWillCome;\n        }\n        if (segment.could_fit",
                "        if (segment.could_fit",
            ),
        ),
        (
            test("metadata/test_eviction", "test_bytes_already_retiring_are_counted_before_more_is_evicted"),
            MODEL,
        ),
    ),
    Mutant(
        "one-key-above-the-limit",
        "max_keys keys are stored and then one more.",
        (
            Edit(
                "native/metadata/placement.cc",
                "        return table_.size() < options_.max_keys &&",
                "        return table_.size() <= options_.max_keys &&",
            ),
        ),
        (test("metadata/test_eviction", "test_key_limit_is_kept_by_eviction"),),
    ),
    Mutant(
        "two-copies-on-one-segment",
        "The choice of segments takes one twice when there are fewer than copies.",
        (
            Edit(
                "native/metadata/placement.cc",
                "        if (!complete() && std::find(chosen_.begin(), chosen_.end(), index) == chosen_.end()) {",
                "        if (!complete()) {",
            ),
        ),
        (test("metadata/test_put", "test_fewer_segments_than_replicas_gives_what_there_is"), MODEL),
    ),
    Mutant(
        "avoided-segment-is-chosen",
        "A put is placed on a segment that its client cannot reach.",
        (
            Edit(
                "native/metadata/placement.cc",
                "        return segment.fits(bytes) && !avoid.contains(segment.id);",
                "        return segment.fits(bytes);",
            ),
        ),
        (test("metadata/test_put", "test_preferred_and_avoided_segments_are_honoured"), MODEL),
    ),
    Mutant(
        "waits-for-a-silent-node",
        "A put waits for bytes to come back from a node that has no connection.",
        (
            Edit(
                "native/metadata/placement.cc",
                "        if (!is_candidate(segment, avoid, bytes) || !answers(segment)) continue;",
                "        if (!is_candidate(segment, avoid, bytes)) continue;",
            ),
        ),
        (test("metadata/test_eviction", "test_space_on_a_node_that_does_not_answer_is_not_waited_for"),),
    ),
    # -- the adaptive policy
    Mutant(
        "prefix-goes-from-its-head",
        "Of the keys of one request the later ones count as asked for later, so a prefix loses its head first.",
        (
            Edit(
                "native/metadata/adaptive_policy.cc",
                "        const std::uint64_t at = clock_ - i;",
                "        const std::uint64_t at = clock_ - keys.size() + i;",
            ),
        ),
        (test("metadata/test_adaptive", "test_a_prefix_goes_from_its_end"),),
    ),
    Mutant(
        "new-values-are-the-youngest",
        "A value that is put gets the newest rank, whatever is known of such as it.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "policy_->filled(table_.hash(object.tenant, object.key()))",
                "policy_->filled(~table_.hash(object.tenant, object.key()))",
            ),
        ),
        (
            test("metadata/test_adaptive", "test_conversations_outlive_prompts_that_are_never_seen_again"),
            test("metadata/test_adaptive", "test_a_prefix_goes_from_its_end"),
        ),
    ),
    Mutant(
        "history-grows-with-what-is-asked",
        "The policy's memory grows with the keys it remembers instead of with the keys that are there.",
        (
            Edit(
                "native/metadata/adaptive_policy.cc",
                "history_.fit(history_sets(pool_.live_keys))",
                "history_.fit(4 * history_.entry_count())",
            ),
        ),
        (test("metadata/test_adaptive", "test_history_takes_at_most_64_bytes_a_key_whatever_is_asked_for"),),
    ),
]
