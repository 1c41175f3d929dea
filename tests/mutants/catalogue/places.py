"""Bugs of remembered places: how long they live, what ends them, and what the master owes to who has them."""

from mutants.planted import Edit, Mutant, native

CACHE = "location_cache_test"
OWED = "remembered_places_test"
CACHE_H = "native/client/core/location_cache.h"
CACHE_CC = "native/client/core/location_cache.cc"
CLUSTER = "native/client/core/cluster.cc"
GET = "native/client/core/get_batch.cc"
DRIVER = "native/master/state_driver.cc"
PROMISES = "native/master/state_driver_promises.cc"
READS = "native/metadata/read_verbs.cc"

MUTANTS = [
    # -- the reader
    Mutant(
        "place-outlives-its-life",
        "A remembered place is used however long ago it was told.",
        (
            Edit(
                CACHE_H,
                "slot.generation == generation_ && ms < slot.until_ms;",
                "slot.generation == generation_ && ms != 0 && slot.until_ms != 0;",
            ),
        ),
        (native(CACHE, "a_place_is_remembered_no_longer_than_the_master_said"),),
    ),
    Mutant(
        "place-outlives-the-reign",
        "Places that an earlier session or master told are used under the next one.",
        (Edit(CLUSTER, "        locations_.forget_all();", "        (void)locations_;"),),
        (native(CACHE, "another_session_remembers_nothing"),),
    ),
    Mutant(
        "late-answer-of-an-earlier-reign",
        "A lookup that was asked under an earlier session is remembered under the next one.",
        (Edit(CACHE_CC, " || asked.generation != generation_) return;", ") return;"),),
        (native(CACHE, "another_session_remembers_nothing"),),
    ),
    Mutant(
        "own-change-bars-nothing",
        "An answer that this client's own put or remove overtook is remembered.",
        (
            Edit(
                CACHE_CC,
                "    if (!bars_.empty() && asked.ms <= bars_[digest % kBars]) return;\n",
                "",
            ),
        ),
        (native(CACHE, "what_this_client_changed_is_not_remembered_from_before"),),
    ),
    Mutant(
        "gone-place-is-kept",
        "A place that turned out to be gone is used again.",
        (
            Edit(
                CLUSTER,
                "    locations_.forget(key, wire::key_digest(tenant_, key));\n    locations_.went_stale();",
                "    (void)key;\n    locations_.went_stale();",
            ),
        ),
        (native(CACHE, "a_gone_place_is_forgotten"), native(CACHE, "a_value_that_was_removed_is_a_miss")),
    ),
    Mutant(
        "remembered-place-decides",
        "A remembered place that cannot be read is a miss or an error, and the master is not asked.",
        (
            Edit(
                GET,
                "    if (entry.is_recalled) {  // whatever it was",
                "    if (entry.is_recalled && status == wire::Status::kChecksumMismatch) {  // whatever it was",
            ),
        ),
        (native(CACHE, "a_place_that_does_not_answer_is_looked_up_again"),),
    ),
    Mutant(
        "remembered-size-is-an-answer",
        "A remembered size that does not fit is answered without asking anybody.",
        (
            Edit(
                GET,
                "    if (!wire::ok(misfit(index))) {\n        results_[index] = before;",
                "    if (false) {",
            ),
        ),
        (native(CACHE, "a_size_that_does_not_fit_is_no_answer_until_the_master_says_so"),),
    ),
    Mutant(
        "remembered-reads-are-not-told",
        "The master never hears of reads by remembered places.",
        (Edit(GET, "        cluster_.recalled_was_read(keys_[i], now_ms);", "        (void)now_ms;"),),
        (native(CACHE, "what_was_found_is_read_without_the_master"),),
    ),
    Mutant(
        "questions-are-answered-from-memory",
        "Who only asks what there is hears what was there before.",
        (Edit(GET, "    may_recall_ = options.may_recall && keys", "    may_recall_ = keys"),),
        (native(CACHE, "who_only_asks_what_there_is_asks_the_master"),),
    ),
    # -- the master
    Mutant(
        "places-live-as-long-as-removes-wait",
        "Places may be remembered for all the time after which a remove is answered, whatever the clocks.",
        (
            Edit(
                DRIVER,
                "        options.remove_confirm_timeout_ms - std::min(options.remove_confirm_timeout_ms, kMarginMs);",
                "        options.remove_confirm_timeout_ms + 0 * kMarginMs;",
            ),
        ),
        (native(OWED, "places_may_be_remembered_for_less_than_a_remove_may_wait"),),
    ),
    Mutant(
        "place-outlives-its-value",
        "A place may be remembered beyond its value's TTL.",
        (
            Edit(
                READS,
                "if (const auto until = ttl_until_ms(object); until != 0)",
                "if (const auto until = ttl_until_ms(object); until == 1)",
            ),
        ),
        (native(OWED, "a_place_is_remembered_no_longer_than_its_value_lives"),),
    ),
    Mutant(
        "starved-clock-shortens-the-wait",
        "A remove is answered early when the clock had not been read for a while.",
        (
            Edit(
                DRIVER,
                " &&\n           confirm_waiters_.front()->waits_until_ms <= true_ms) {",
                " && true_ms != 0) {",
            ),
        ),
        (native(OWED, "a_clock_that_was_not_read_shortens_no_wait"),),
    ),
    Mutant(
        "expulsion-is-a-confirmation",
        "A remove that waits for a node is answered when the node is expelled, which may serve the value still.",
        (
            Edit(
                PROMISES,
                "        if (may_be_served) note_memory(*found->second, steady_ms());\n",
                "        (void)may_be_served;\n",
            ),
        ),
        (native("master_test", "expelled_node_shortens_no_waiting"),),
    ),
    Mutant(
        "lost-copies-are-not-waited-for",
        "What ends a value that lay on a node which just left is answered at once.",
        (
            Edit(
                PROMISES,
                "    if (unheard_ms_ != 0 && ends_something) note_memory(call, unheard_ms_);",
                "    (void)ends_something;",
            ),
        ),
        (native(OWED, "what_lay_on_a_node_that_just_left_is_answered_late"),),
    ),
    Mutant(
        "full-parking-answers-commits-early",
        "A commit over a value is not held when too many calls wait already: at the limit it is refused.",
        (Edit(DRIVER, "parking_is_full(is_dear ? 2 : 1)", "parking_is_full(is_dear ? 1 : 1)"),),
        (native(OWED, "a_full_parking_place_answers_no_commit_before_its_time"),),
    ),
    Mutant(
        "remembered-hits-do-not-count",
        "Reads by remembered places are no hits in the master's metrics.",
        (Edit(READS, "    counters_.lookup_hits += count;\n", ""),),
        (native(OWED, "reads_by_remembered_places_count_as_hits"),),
    ),
]
