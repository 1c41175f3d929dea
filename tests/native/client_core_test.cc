// The client core's decisions, with faults planted in the master, the nodes and the network between.
#include "client_world.h"

namespace mooncake::wire {
std::ostream& operator<<(std::ostream& out, Status status) { return out << status_name(status); }
std::ostream& operator<<(std::ostream& out, Verb verb) { return out << verb_name(verb); }
}  // namespace mooncake::wire

namespace {

using namespace world;

std::size_t count_of(const World& w, wire::Verb verb) {
    return static_cast<std::size_t>(std::count(w.asked.begin(), w.asked.end(), verb));
}

TEST(what_was_put_is_got) {
    World w;
    w.placement = {11, 12};
    const auto statuses = put(w, {"a", "b", ""}, {"apple", "", "x"});
    CHECK_EQUAL(statuses[0], Status::kOk);
    CHECK_EQUAL(statuses[1], Status::kOk);
    CHECK_EQUAL(statuses[2], Status::kInvalidKey);
    const auto got = get(w, {"b", "a", "c"});
    CHECK_EQUAL(got.results[0].status, Status::kOk);
    CHECK_EQUAL(got.values[0], "");
    CHECK_EQUAL(got.values[1], "apple");
    CHECK_EQUAL(got.results[2].status, Status::kObjectNotFound);
    CHECK(w.unfinished.empty());
    // One request a node for the whole batch.
    CHECK_EQUAL(w.node(11).writes, 1U);
    CHECK_EQUAL(w.node(12).writes, 1U);
}

TEST(a_lost_answer_is_asked_for_again_with_the_same_number) {
    for (const auto verb : {wire::Verb::kPutStart, wire::Verb::kPutEnd}) {
        World w;
        w.lost_answers[verb] = 3;
        CHECK_EQUAL(put(w, {"a"}, {"apple"})[0], Status::kOk);
        CHECK_EQUAL(count_of(w, verb), 4U);
        CHECK_EQUAL(w.executed, 3U);  // put_start, segments, put_end
        CHECK_EQUAL(std::set<std::uint64_t>(w.sequences.begin(), w.sequences.end()).size(), 2U);
    }
}

// Found by the simulation: a client that went to a new master and back to the old one, which still knew it,
// began to count from 1 again. The old master took its requests for repeats: a remove was answered and not
// carried out, a put got the grants of another one.
TEST(a_session_that_comes_back_sees_no_number_twice) {
    World w;
    std::set<std::uint64_t> numbers;
    for (int i = 0; i < 3; ++i) CHECK(numbers.insert(w.cluster.stamp(true).sequence).second);
    w.open_session(8);
    w.cluster.stamp(true);
    w.open_session(7);
    for (int i = 0; i < 3; ++i) CHECK(numbers.insert(w.cluster.stamp(true).sequence).second);
}

TEST(an_answer_that_never_comes_ends_with_the_deadline) {
    World w;
    w.lost_answers[wire::Verb::kLookup] = 1'000'000;
    const auto start = w.now_ms;
    CHECK_EQUAL(get(w, {"a"}, 64, 500).results[0].status, Status::kRpcFail);
    CHECK_EQUAL(w.now_ms, start + 500);
}

TEST(a_put_given_up_is_revoked) {
    World w;
    w.lost_answers[wire::Verb::kPutEnd] = 1'000'000;
    CHECK_EQUAL(put(w, {"a"}, {"apple"}, 0, 500)[0], Status::kRpcFail);
    CHECK_EQUAL(w.cluster.take_revokes().size(), 1U);
}

TEST(an_unknown_session_is_opened_anew_and_the_request_repeated) {
    for (const auto verb : {wire::Verb::kPutStart, wire::Verb::kPutEnd, wire::Verb::kSegments}) {
        World w;
        w.unknown_session[verb] = 1;
        CHECK_EQUAL(put(w, {"a"}, {"apple"})[0], Status::kOk);
        CHECK_EQUAL(w.sessions_opened, 1U);
        CHECK_EQUAL(get(w, {"a"}).values[0], "apple");
    }
}

TEST(no_range_puts_again_as_often_as_the_master_may_evict_more) {
    World w;
    w.node(11).write_status = Status::kNoRange;
    CHECK_EQUAL(put(w, {"a"}, {"apple"})[0], Status::kNoSpace);
    CHECK_EQUAL(count_of(w, wire::Verb::kPutStart), 9U);
    CHECK(w.unfinished.empty());

    World other;
    other.node(11).write_status = Status::kNoRange;
    other.on_asked = [&](wire::Verb verb) {
        if (verb == wire::Verb::kPutEnd && other.node(11).writes == 3)
            other.node(11).write_status = Status::kOk;
    };
    CHECK_EQUAL(put(other, {"a"}, {"apple"})[0], Status::kOk);
    CHECK_EQUAL(other.node(11).writes, 4U);
}

TEST(a_stale_grant_puts_again_once) {
    World w;
    w.node(11).write_status = Status::kStaleGrant;
    w.on_asked = [&](wire::Verb verb) {
        if (verb == wire::Verb::kPutEnd) w.node(11).write_status = Status::kOk;
    };
    CHECK_EQUAL(put(w, {"a"}, {"apple"})[0], Status::kOk);

    World hopeless;
    hopeless.node(11).write_status = Status::kStaleGrant;
    CHECK_EQUAL(put(hopeless, {"a"}, {"apple"})[0], Status::kStaleGrant);
    CHECK_EQUAL(count_of(hopeless, wire::Verb::kPutStart), 2U);
}

TEST(a_busy_node_is_asked_again_until_the_deadline) {
    World w;
    w.node(11).write_status = Status::kBusy;
    int commits = 0;
    w.on_asked = [&](wire::Verb verb) {
        if (verb == wire::Verb::kPutEnd && ++commits == 4) w.node(11).write_status = Status::kOk;
    };
    CHECK_EQUAL(put(w, {"a"}, {"apple"})[0], Status::kOk);
    w.node(11).busy_reads = 5;
    CHECK_EQUAL(get(w, {"a"}).values[0], "apple");
    w.node(11).busy_reads = 1'000'000;
    const auto start = w.now_ms;
    CHECK_EQUAL(get(w, {"a"}, 64, 500).results[0].status, Status::kBusy);
    CHECK_EQUAL(w.now_ms, start + 500);
    // Each time after a longer wait.
    CHECK(1'000'000 - w.node(11).busy_reads < 10);
    w.node(11).write_status = Status::kBusy;
    CHECK_EQUAL(put(w, {"b"}, {"berry"}, 0, 500)[0], Status::kBusy);
    CHECK(w.unfinished.empty());
}

TEST(a_replica_already_written_counts) {
    World w;
    w.node(11).write_status = Status::kSealed;
    CHECK_EQUAL(put(w, {"a"}, {"apple"})[0], Status::kOk);
}

TEST(a_put_under_way_elsewhere_is_waited_for) {
    World w;
    w.not_ready = {"a"};
    int asks = 0;
    w.on_asked = [&](wire::Verb verb) {
        if (verb != wire::Verb::kPutStart || ++asks < 5) return;
        w.not_ready.clear();
        w.plant("a", "theirs", {12});
    };
    CHECK_EQUAL(put(w, {"a", "b"}, {"ours", "bean"})[0], Status::kObjectAlreadyExists);
    CHECK_EQUAL(get(w, {"a"}).values[0], "theirs");
    CHECK_EQUAL(get(w, {"b"}).values[0], "bean");

    World given_up;
    given_up.not_ready = {"a"};
    asks = 0;
    given_up.on_asked = [&](wire::Verb verb) {
        if (verb == wire::Verb::kPutStart && ++asks == 5) given_up.not_ready.clear();
    };
    CHECK_EQUAL(put(given_up, {"a"}, {"ours"})[0], Status::kOk);

    World for_ever;
    for_ever.not_ready = {"a"};
    CHECK_EQUAL(put(for_ever, {"a"}, {"ours"}, 0, 300)[0], Status::kNotReady);
}

TEST(a_key_twice_in_a_batch_is_stored_once) {
    World w;
    const auto statuses = put(w, {"a", "b", "a"}, {"first", "bean", "second"});
    CHECK_EQUAL(statuses[0], Status::kOk);
    CHECK_EQUAL(statuses[2], Status::kObjectAlreadyExists);
    CHECK_EQUAL(get(w, {"a"}).values[0], "first");
}

TEST(a_dead_node_is_left_out_and_the_put_goes_elsewhere) {
    World w;
    w.placement = {11};
    w.node(11).failure = Failure::kDial;
    w.on_asked = [&](wire::Verb verb) {
        if (verb == wire::Verb::kPutEnd) w.placement = {11, 12};
    };
    CHECK_EQUAL(put(w, {"a"}, {"apple"})[0], Status::kOk);
    CHECK_EQUAL(w.objects["a"].places.size(), 1U);
    CHECK_EQUAL(w.objects["a"].places[0].segment, 12U);
    CHECK_EQUAL(w.cluster.unreachable_count(), 1U);
}

TEST(one_dead_replica_of_two_still_stores) {
    World w;
    w.placement = {11, 12};
    w.node(12).failure = Failure::kDeadline;
    CHECK_EQUAL(put(w, {"a"}, {"apple"})[0], Status::kOk);
    CHECK_EQUAL(w.objects["a"].places.size(), 1U);
}

TEST(a_connection_that_died_of_age_is_replaced_once) {
    World w;
    w.node(11).breaks_stale_connections = true;
    CHECK_EQUAL(put(w, {"a"}, {"apple"})[0], Status::kOk);
    CHECK_EQUAL(get(w, {"a"}).values[0], "apple");
    CHECK_EQUAL(w.node(11).reads, 2U);
    CHECK_EQUAL(w.cluster.unreachable_count(), 0U);
}

TEST(a_gone_replica_fails_over_to_the_next) {
    World w;
    std::vector<std::string> keys;
    for (int i = 0; i < 16; ++i) {  // whichever replica chance puts first
        keys.push_back("key-" + std::to_string(i));
        w.plant(keys.back(), keys.back(), {11, 12});
    }
    w.node(11).replicas.clear();
    CHECK(get(w, keys).values == keys);
    CHECK_EQUAL(count_of(w, wire::Verb::kLookup), 1U);
}

TEST(gone_everywhere_looks_up_once_more) {
    World w;
    w.plant("a", "apple", {11});
    w.node(11).replicas.clear();
    int lookups = 0;
    w.on_asked = [&](wire::Verb verb) {
        if (verb == wire::Verb::kLookup && ++lookups == 2) w.plant("a", "moved", {12});
    };
    CHECK_EQUAL(get(w, {"a"}).values[0], "moved");
    CHECK_EQUAL(lookups, 2);

    World lost;
    lost.plant("a", "apple", {11, 12});
    lost.node(11).replicas.clear();
    lost.node(12).replicas.clear();
    CHECK_EQUAL(get(lost, {"a"}).results[0].status, Status::kObjectNotFound);
    CHECK_EQUAL(count_of(lost, wire::Verb::kLookup), 2U);
}

// Two moves in a row, each between a lookup and its read: the value was there all the time.
TEST(a_value_that_moves_again_while_it_is_read_is_followed) {
    for (const int moves : {2, 7, 8}) {
        World w;
        w.plant("a", "apple", {11});
        w.node(11).replicas.clear();
        int lookups = 0;
        w.on_asked = [&](wire::Verb verb) {
            if (verb != wire::Verb::kLookup || ++lookups == 1) return;
            w.plant("a", "apple", {12});
            if (lookups <= moves) w.node(12).replicas.clear();
        };
        const auto found = get(w, {"a"});
        CHECK_EQUAL(lookups, std::min(moves + 1, int{kLookupsMax}));
        CHECK_EQUAL(found.results[0].status, moves < int{kLookupsMax} ? Status::kOk : Status::kObjectNotFound);
    }
}

namespace {

struct Ranges {
    std::vector<GetResult> results;
    std::vector<std::string> values;
};

Ranges get_ranges(World& w, const std::vector<std::string>& keys, const std::vector<ValueRange>& ranges,
                  bool checksums = true) {
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    GetBatch batch(w.cluster, w.now_ms + 10'000, views, {checksums, false, ranges});
    std::vector<std::uint64_t> capacities;
    Ranges got;
    for (const auto& range : ranges) {
        capacities.push_back(range.length);
        got.values.emplace_back(range.length, '?');
    }
    batch.set_capacities(std::move(capacities));
    w.run(batch, {}, &got.values);
    got.results = batch.results();
    return got;
}

}  // namespace

TEST(parts_of_values_are_read_alone) {
    World w;
    w.plant("a", "0123456789", {11});
    w.plant("b", "abcdefghij", {12});
    const auto got = get_ranges(w, {"a", "b", "a", "a", "none", "a", "a"},
                                {{2, 3}, {0, 10}, {9, 1}, {8, 3}, {0, 1}, {10, 0}, {~0ULL, 2}});
    CHECK(got.values[0] == "234" && got.values[1] == "abcdefghij" && got.values[2] == "9");
    const std::vector<Status> expected{Status::kOk,           Status::kOk,
                                       Status::kOk,           Status::kInvalidParams,
                                       Status::kObjectNotFound, Status::kOk,
                                       Status::kInvalidParams};
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK_EQUAL(got.results[i].status, expected[i]);
    CHECK_EQUAL(got.results[0].put_id, got.results[2].put_id);
    CHECK_EQUAL(count_of(w, wire::Verb::kLookup), 1U);
    CHECK_EQUAL(w.node(11).reads, 1U);
}

TEST(a_part_that_is_damaged_on_its_way_is_no_answer) {
    World w;
    w.plant("a", "0123456789", {11});
    w.damages_parts = true;
    CHECK_EQUAL(get_ranges(w, {"a"}, {{2, 3}}).results[0].status, Status::kChecksumMismatch);
    CHECK_EQUAL(get_ranges(w, {"a"}, {{2, 3}}, false).results[0].status, Status::kOk);
}

// A node looks at no more than kVerifiedBytesMax a request: neither may one ask for more, nor can a part of
// a value that is larger be checked at all.
TEST(a_request_for_parts_is_no_more_than_a_node_looks_at) {
    World w;
    const std::string large(wire::kVerifiedBytesMax - 10, 'x');
    w.plant("a", large, {11});
    w.plant("b", large, {11});
    const auto got = get_ranges(w, {"a", "b", "a"}, {{0, 10}, {5, 10}, {0, 11}});
    CHECK_EQUAL(got.results[0].status, Status::kOk);
    CHECK_EQUAL(got.results[1].status, Status::kOk);
    CHECK_EQUAL(got.results[2].status, Status::kValueTooLarge);
    CHECK_EQUAL(w.node(11).reads, 2U);
    CHECK_EQUAL(get_ranges(w, {"a"}, {{0, 11}}, false).results[0].status, Status::kOk);
}

TEST(an_expelled_segment_counts_as_gone) {
    World w;
    w.plant("a", "apple", {11});
    w.objects["a"].places[0].segment = 99;
    CHECK_EQUAL(get(w, {"a"}).results[0].status, Status::kObjectNotFound);
    CHECK_EQUAL(count_of(w, wire::Verb::kLookup), 2U);
}

TEST(wrong_bytes_are_never_an_answer) {
    World w;
    w.plant("a", "apple", {11, 12});
    w.node(11).replicas.begin()->second.bytes = "appla";
    for (int i = 0; i < 8; ++i) CHECK_EQUAL(get(w, {"a"}).values[0], "apple");
    w.node(12).replicas.begin()->second.bytes = "bpple";
    CHECK_EQUAL(get(w, {"a"}).results[0].status, Status::kChecksumMismatch);
}

TEST(another_keys_value_is_never_an_answer) {
    World w;
    w.plant("a", "apple", {11});
    w.plant("b", "berry", {11});
    // The node's directory goes wrong: a's replica serves b's value, with a checksum that is right for b.
    auto& replicas = w.node(11).replicas;
    auto stolen = replicas[w.objects["b"].places[0].replica];
    stolen.digest = wire::key_digest("tenant", "a");
    replicas[w.objects["a"].places[0].replica] = stolen;
    CHECK_EQUAL(get(w, {"a"}).results[0].status, Status::kChecksumMismatch);
}

TEST(an_older_value_of_the_key_is_never_an_answer) {
    World w;
    w.plant("a", "older", {11});
    const auto older = w.node(11).replicas[w.objects["a"].places[0].replica];
    w.plant("a", "newer", {11});
    // The node's directory goes wrong: the new replica serves what the key held before, with its checksum.
    w.node(11).replicas[w.objects["a"].places[0].replica] = older;
    CHECK_EQUAL(get(w, {"a"}).results[0].status, Status::kChecksumMismatch);
}

TEST(the_checksum_of_a_value_covers_tenant_key_and_put_id) {
    const auto seed = wire::value_checksum_seed("tenant", "key", 7);
    CHECK(seed != wire::value_checksum_seed("tenent", "key", 7));
    CHECK(seed != wire::value_checksum_seed("tenant", "kez", 7));
    CHECK(seed != wire::value_checksum_seed("tenant", "key", 8));
    CHECK(seed != wire::value_checksum_seed("tenantk", "ey", 7));
    // FRAMES.md: CRC32C over u16 tenant length, tenant, key, u64 put_id.
    const std::string bytes = std::string("\6\0tenantkey\7\0\0\0\0\0\0\0", 2 + 6 + 3 + 8);
    CHECK_EQUAL(seed, wire::crc32c(0, bytes.data(), bytes.size()));
}

TEST(unreachable_replicas_are_an_error_not_a_miss) {
    World w;
    w.plant("a", "apple", {11, 12});
    w.node(11).failure = Failure::kDial;
    CHECK_EQUAL(get(w, {"a"}).values[0], "apple");
    w.node(12).failure = Failure::kDial;
    const auto status = get(w, {"a"}).results[0].status;
    CHECK(status == Status::kUnreachable || status == Status::kTransferFail);
    // From now on the master is told, and nobody dials.
    const auto reads = w.node(11).reads + w.node(12).reads;
    CHECK_EQUAL(get(w, {"a"}).results[0].status, Status::kUnreachable);
    CHECK_EQUAL(w.node(11).reads + w.node(12).reads, reads);
    // A probe brings them back.
    w.node(11).failure.reset();
    w.now_ms += kProbeDelayMinMs;
    w.probe();
    CHECK_EQUAL(get(w, {"a"}).values[0], "apple");
    CHECK_EQUAL(w.cluster.unreachable_count(), 1U);
}

TEST(the_replica_on_this_host_is_read) {
    World w;
    w.plant("a", "apple", {11, 12, 13});
    for (int i = 0; i < 8; ++i) get(w, {"a"});
    CHECK_EQUAL(w.node(13).reads, 8U);
}

TEST(a_target_too_small_is_told_the_size) {
    World w;
    w.plant("a", "apple", {11});
    const auto got = get(w, {"a"}, 4);
    CHECK_EQUAL(got.results[0].status, Status::kBufferOverflow);
    CHECK_EQUAL(got.results[0].length, 5U);
    CHECK_EQUAL(got.values[0], "????");
}

TEST(large_values_are_read_over_two_connections) {
    World w;
    std::string large(5u << 20, '\0');
    for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7 + i / 251);
    w.plant("a", large, {11});
    w.plant("b", "berry", {11});
    const auto got = get(w, {"b", "a"}, large.size());
    CHECK_EQUAL(got.results[1].status, Status::kOk);
    CHECK(got.values[1] == large);
    CHECK_EQUAL(got.values[0], "berry");
    CHECK_EQUAL(w.node(11).reads, 2U);
    w.node(11).replicas[w.objects["a"].places[0].replica].bytes[large.size() - 1] ^= 1;
    CHECK_EQUAL(get(w, {"a"}, large.size()).results[0].status, Status::kChecksumMismatch);
}

TEST(an_opened_value_is_read_when_there_is_room) {
    World w;
    w.plant("a", "apple", {11});
    const std::vector<std::string_view> keys{"a", "none"};
    GetBatch batch(w.cluster, w.now_ms + 1'000, keys, {});
    w.run(batch);
    CHECK_EQUAL(batch.results()[0].length, 5U);
    CHECK_EQUAL(batch.results()[1].status, Status::kObjectNotFound);
    std::vector<std::string> targets{"?????", ""};
    batch.set_capacities({5, GetBatch::kNotWanted});
    w.run(batch, {}, &targets, [&](Actions& actions) { batch.read(w.now_ms + 1'000, w.now_ms, actions); });
    CHECK_EQUAL(targets[0], "apple");
    CHECK_EQUAL(batch.results()[1].status, Status::kObjectNotFound);
    CHECK(w.cluster.has_releases());
    CHECK(!w.cluster.releases_due(w.now_ms));
    CHECK(w.cluster.releases_due(w.now_ms + kReleaseDelayMs));
    CHECK_EQUAL(w.cluster.take_releases().bytes, "a");
}

TEST(long_batches_are_cut) {
    World w;
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < wire::kBatchKeysMax + 10; ++i) keys.push_back("k" + std::to_string(i));
    keys[3] = "";
    for (const auto& key : keys) {
        if (!key.empty()) w.plant(key, "v", {11});
    }
    w.objects.erase(keys.back());
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    KeyBatch exists(w.cluster, w.now_ms + 1'000, wire::Verb::kExists, 0, views);
    w.run(exists);
    CHECK_EQUAL(exists.statuses()[3], Status::kInvalidKey);
    CHECK_EQUAL(exists.statuses()[wire::kBatchKeysMax + 1], Status::kOk);
    CHECK_EQUAL(exists.statuses().back(), Status::kObjectNotFound);
    CHECK_EQUAL(w.asked.size(), 2U);

    const auto valid = std::span(views).subspan(4);
    MatchPrefix match(w.cluster, w.now_ms + 1'000, 0, valid);
    w.run(match);
    CHECK_EQUAL(std::size_t{match.length()}, valid.size() - 1);
    CHECK_EQUAL(match.miss(), Status::kObjectNotFound);

    const auto got = get(w, keys, 1);
    CHECK_EQUAL(got.values[wire::kBatchKeysMax + 5], "v");
}

TEST(a_read_gives_back_every_lease_it_was_granted) {
    World w;
    w.plant("a", "apple", {11});
    w.plant("b", "berry", {11});
    w.plant("c", "cherry", {12});
    w.node(12).replicas.clear();  // gone: looked up once more, which grants a second lease
    get(w, {"a", "none", "b", "c"});
    CHECK_EQUAL(w.cluster.take_releases().bytes, "abcc");
}

TEST(releases_are_told_at_once_when_a_remove_waits_for_them) {
    World w;
    w.plant("a", "apple", {11});
    w.plant("b", "berry", {11});
    CHECK(w.cluster.is_told(w.cluster.hurry_releases()));  // none: nothing to wait for
    get(w, {"a"});
    CHECK(!w.cluster.releases_due(w.now_ms));
    const auto first = w.cluster.hurry_releases();
    CHECK(w.cluster.releases_due(w.now_ms));
    CHECK_EQUAL(w.cluster.take_releases().bytes, "a");
    // On its way to the master is not told yet, and what is released meanwhile goes the next time.
    CHECK(!w.cluster.is_told(first));
    CHECK(!w.cluster.is_told(w.cluster.hurry_releases()));
    get(w, {"b"});
    CHECK(!w.cluster.releases_due(w.now_ms));
    w.cluster.releases_told();
    CHECK(w.cluster.is_told(first));
    CHECK(!w.cluster.is_told(w.cluster.hurry_releases()));
    CHECK_EQUAL(w.cluster.take_releases().bytes, "b");
    w.cluster.releases_told();
    CHECK(w.cluster.is_told(w.cluster.hurry_releases()));
    w.cluster.release({}, w.now_ms);
    CHECK(w.cluster.is_told(w.cluster.hurry_releases()));
}

TEST(a_session_found_again_goes_on_with_its_numbers) {
    World w;
    CHECK_EQUAL(put(w, {"a"}, {"apple"})[0], Status::kOk);
    w.open_session(w.session);  // as after a lost connection: the same process, the same session
    CHECK_EQUAL(put(w, {"b"}, {"berry"})[0], Status::kOk);
    CHECK_EQUAL(get(w, {"b"}).values[0], "berry");
    CHECK_EQUAL(std::set<std::uint64_t>(w.sequences.begin(), w.sequences.end()).size(), w.sequences.size());
}

TEST(a_put_is_stored_only_when_its_commit_was) {
    World w;
    // Reaped between the write and its commit, as after a long pause of this client.
    w.on_asked = [&](wire::Verb verb) {
        if (verb == wire::Verb::kPutEnd) w.unfinished.clear();
    };
    CHECK_EQUAL(put(w, {"a"}, {"apple"})[0], Status::kStaleGrant);
    CHECK_EQUAL(get(w, {"a"}).results[0].status, Status::kObjectNotFound);
}

TEST(a_remove_repeated_has_the_effect_of_one) {
    World w;
    w.plant("a", "apple", {11});
    w.lost_answers[wire::Verb::kRemove] = 1;
    const std::vector<std::string_view> keys{"a"};
    KeyBatch remove(w.cluster, w.now_ms + 1'000, wire::Verb::kRemove, 0, keys);
    w.run(remove);
    CHECK_EQUAL(remove.statuses()[0], Status::kOk);
}

TEST(a_read_reply_that_exceeds_what_was_asked_is_refused) {
    const std::vector<ReadPart> parts{{0, 0, 0, 10}, {1, 0, 0, 5}};
    const auto accepts = [&](std::vector<wire::Piece> pieces, bool has_more) {
        wire::ReadReply reply;
        reply.pieces = std::move(pieces);
        reply.metadata.resize(reply.pieces.size());
        for (const auto& piece : reply.pieces) reply.payload_bytes += piece.length + sizeof(wire::Verdict);
        return ReadAssembly(parts).accept(reply, has_more);
    };
    const auto last = wire::kPieceLast;
    CHECK(accepts({{0, last, 0, 10}, {1, last, 0, 5}}, false));
    CHECK(accepts({{0, 0, 0, 4}, {0, last, 0, 6}}, true));
    CHECK(!accepts({{0, last, 0, 11}, {1, last, 0, 5}}, false));
    CHECK(!accepts({{0, 0, 0, 4}, {0, last, 0, 7}}, true));
    CHECK(!accepts({{1, last, 0, 5}, {0, last, 0, 10}}, false));
    CHECK(!accepts({{0, last, 0, 10}, {0, last, 0, 0}}, true));
    CHECK(!accepts({{0, last, 0, 10}}, false));
    CHECK(!accepts({}, true));
    CHECK(!accepts({{0, last, 0, 10}, {1, last, 0, 5}, {2, last, 0, 0}}, false));
}

TEST(a_piece_longer_than_a_chunk_is_malformed) {
    const auto parses = [](std::uint64_t length) {
        const wire::Piece piece{0, wire::kPieceLast, 0, length};
        const std::string_view metadata;
        wire::Buffer body;
        wire::Writer writer(body);
        wire::encode_read_reply({&piece, 1}, {&metadata, 1}, writer);
        return wire::parse_read_reply(body).has_value();
    };
    CHECK(parses(wire::kChunkBytesMax));
    CHECK(!parses(wire::kChunkBytesMax + 1));
    CHECK(!parses(~std::uint64_t{0}));
}

TEST(a_short_value_is_not_an_answer_even_when_the_verdict_says_so) {
    const std::vector<ReadPart> parts{{0, 0, 0, 10}};
    ReadAssembly assembly(parts);
    wire::ReadReply reply;
    reply.pieces = {{0, wire::kPieceLast, 0, 9}};
    reply.metadata = {""};
    CHECK(assembly.accept(reply, false));
    const std::vector<wire::Verdict> verdicts{{Status::kOk, 0, 0}};
    assembly.settle(verdicts);
    CHECK_EQUAL(assembly.answers()[0].verdict.status, Status::kTransferFail);
}

// A node's descriptors promise bytes; only the bytes and the verdict after them make an answer. The
// simulation found gets that answered OK with whatever lay in the caller's buffer when the connection had
// ended amid them.
TEST(what_was_announced_but_did_not_come_has_no_verdict) {
    const std::vector<ReadPart> parts{{0, 0, 0, 10}, {1, 0, 0, 5}};
    ReadAssembly assembly(parts);
    wire::ReadReply reply;
    reply.pieces = {{0, wire::kPieceLast, 0, 10}, {1, wire::kPieceLast, 0, 5}};
    reply.metadata = {"", ""};
    CHECK(assembly.accept(reply, false));
    for (const auto& answer : assembly.answers()) {
        CHECK_EQUAL(answer.verdict.status, Status::kTransferFail);
    }
    assembly.settle(std::vector<wire::Verdict>(2));
    for (const auto& answer : assembly.answers()) CHECK_EQUAL(answer.verdict.status, Status::kOk);
}

}  // namespace

int main(int argc, char** argv) { return check::run(argc, argv); }
