// Values that are read where they were found before: what is remembered, for how long, and that a place which
// does not do costs a lookup, never a miss or an error.
#include "client_world.h"

namespace mooncake::wire {
std::ostream& operator<<(std::ostream& out, Status status) { return out << status_name(status); }
std::ostream& operator<<(std::ostream& out, Verb verb) { return out << verb_name(verb); }
}  // namespace mooncake::wire

namespace {

using namespace world;

constexpr std::uint8_t kTtl = 112;
constexpr std::uint64_t kTtlMs = kTtl * wire::kLocationTtlUnitMs;

std::size_t count_of(const World& w, wire::Verb verb) {
    return static_cast<std::size_t>(std::count(w.asked.begin(), w.asked.end(), verb));
}
std::size_t lookups(const World& w) { return count_of(w, wire::Verb::kLookup); }

// One client that has found "a" and will find it there again.
struct Found : World {
    explicit Found(std::vector<wire::SegmentId> at = {11}) {
        location_ttl = kTtl;
        placement = std::move(at);
        put(*this, {"a"}, {"apple"});
        now_ms += 1;  // what its own put barred is over
        CHECK_EQUAL(value("a"), "apple");
        CHECK_EQUAL(lookups(*this), 1U);
    }
    std::string value(const std::string& key) {
        const auto got = get(*this, {key});
        return wire::ok(got.results[0].status) ? got.values[0] : wire::status_name(got.results[0].status);
    }
    // Somebody else's remove, or their other value.
    void end_elsewhere(const std::string& key) {
        for (const auto& place : objects.at(key).places) {
            for (auto& node : nodes) node.replicas.erase(place.replica);
        }
        objects.erase(key);
    }
};

void remove(World& w, const std::string& key) {
    const std::string_view view(key);
    KeyBatch batch(w.cluster, w.now_ms + 1'000, wire::Verb::kRemove, 0, std::span(&view, 1));
    w.run(batch, {}, nullptr);
}

TEST(what_was_found_is_read_without_the_master) {
    Found w;
    const auto asked = w.asked.size();
    CHECK_EQUAL(w.value("a"), "apple");
    CHECK_EQUAL(w.asked.size(), asked);
    CHECK_EQUAL(w.cluster.locations().counts(w.now_ms).hits, 1U);
    CHECK(!w.cluster.locations().take_accesses().counts.empty());
}

TEST(a_place_is_remembered_no_longer_than_the_master_said) {
    Found w;
    w.now_ms += kTtlMs - 1;
    CHECK_EQUAL(w.value("a"), "apple");
    CHECK_EQUAL(lookups(w), 1U);
    w.now_ms += 1;  // a read by a remembered place does not prolong it
    CHECK_EQUAL(w.value("a"), "apple");
    CHECK_EQUAL(lookups(w), 2U);
}

TEST(its_life_counts_from_the_question_not_from_the_answer) {
    World w;
    w.location_ttl = kTtl;
    put(w, {"a"}, {"apple"});
    w.now_ms += 1;
    w.on_asked = [&](wire::Verb verb) {
        if (verb == wire::Verb::kLookup) w.now_ms += kTtlMs - 10;
    };
    get(w, {"a"});
    w.on_asked = nullptr;
    get(w, {"a"});
    CHECK_EQUAL(lookups(w), 1U);
    w.now_ms += 10;
    get(w, {"a"});
    CHECK_EQUAL(lookups(w), 2U);
}

TEST(a_master_that_says_nothing_is_asked_each_time) {
    World w;
    put(w, {"a"}, {"apple"});
    w.now_ms += 1;
    get(w, {"a"});
    get(w, {"a"});
    CHECK_EQUAL(lookups(w), 2U);
}

TEST(a_value_that_was_removed_is_a_miss) {
    Found w;
    w.end_elsewhere("a");
    CHECK_EQUAL(w.value("a"), "OBJECT_NOT_FOUND");
    CHECK_EQUAL(lookups(w), 2U);
    CHECK_EQUAL(w.cluster.locations().counts(w.now_ms).stale, 1U);
}

TEST(a_gone_place_is_forgotten) {
    Found w;
    auto& object = w.objects.at("a");
    auto stored = w.nodes[0].replicas.at(object.places[0].replica);
    w.nodes[0].replicas.clear();  // moved
    object.places[0] = {wire::make_id(1, 900), 12};
    w.nodes[1].replicas[object.places[0].replica] = stored;
    CHECK_EQUAL(w.value("a"), "apple");
    const auto reads = w.nodes[0].reads;
    CHECK_EQUAL(w.value("a"), "apple");
    CHECK_EQUAL(lookups(w), 2U);
    CHECK_EQUAL(w.nodes[0].reads, reads);
}

TEST(a_place_that_does_not_answer_is_looked_up_again) {
    Found w;
    auto& object = w.objects.at("a");
    const auto stored = w.nodes[0].replicas.at(object.places[0].replica);
    object.places.push_back({wire::make_id(1, 900), 12});  // a copy, made since
    w.nodes[1].replicas[object.places[1].replica] = stored;
    w.nodes[0].failure = Failure::kStalled;
    CHECK_EQUAL(w.value("a"), "apple");
    CHECK_EQUAL(lookups(w), 2U);
}

TEST(a_peer_known_to_be_silent_is_not_asked_although_remembered) {
    Found w;
    auto& object = w.objects.at("a");
    put(w, {"b"}, {"berry"});
    w.now_ms += 1;
    CHECK_EQUAL(w.value("b"), "berry");
    w.nodes[0].failure = Failure::kRefused;
    w.end_elsewhere("b");
    CHECK_EQUAL(w.value("b"), "OBJECT_NOT_FOUND");  // found out by this
    const auto reads = w.nodes[0].reads;
    const auto stored = w.nodes[0].replicas.at(object.places[0].replica);
    object.places.push_back({wire::make_id(1, 900), 12});
    w.nodes[1].replicas[object.places[1].replica] = stored;
    CHECK_EQUAL(w.value("a"), "apple");
    CHECK_EQUAL(w.nodes[0].reads, reads);
}

TEST(wrong_bytes_where_it_was_remembered_are_read_elsewhere) {
    Found w;
    auto& object = w.objects.at("a");
    const auto stored = w.nodes[0].replicas.at(object.places[0].replica);
    w.nodes[0].replicas.at(object.places[0].replica).bytes = "apply";
    object.places = {{wire::make_id(1, 900), 12}};
    w.nodes[1].replicas[object.places[0].replica] = stored;
    CHECK_EQUAL(w.value("a"), "apple");
}

TEST(a_busy_place_is_looked_up_when_it_is_asked_again) {
    Found w;
    w.nodes[0].busy_reads = 1;
    CHECK_EQUAL(w.value("a"), "apple");
    CHECK_EQUAL(lookups(w), 2U);
}

TEST(a_size_that_does_not_fit_is_no_answer_until_the_master_says_so) {
    Found w;
    w.end_elsewhere("a");
    put(w, {"c"}, {"c"});
    w.objects["a"] = w.objects.at("c");
    auto& place = w.objects.at("a").places[0];
    auto stored = w.nodes[0].replicas.at(place.replica);
    stored.digest = wire::key_digest("tenant", "a");
    const auto seed = wire::value_checksum_seed("tenant", "a", w.objects.at("a").put_id);
    stored.header.checksum = wire::crc32c(seed, "c", 1);
    place.replica = wire::make_id(1, 901);
    w.nodes[0].replicas[place.replica] = stored;
    const auto got = get(w, {"a"}, 1);  // "apple" would not fit
    CHECK_EQUAL(got.results[0].status, Status::kOk);
    CHECK_EQUAL(got.values[0], "c");
}

TEST(who_only_asks_what_there_is_asks_the_master) {
    Found w;
    const std::string_view key = "a";
    GetBatch batch(w.cluster, w.now_ms + 1'000, std::span(&key, 1), {true, false, {}, false, false});
    w.run(batch, {}, nullptr);
    CHECK_EQUAL(lookups(w), 2U);
}

TEST(long_calls_neither_remember_nor_recall) {
    World w;
    w.location_ttl = kTtl;
    std::vector<std::string> keys;
    for (std::size_t i = 0; i <= kRecalledKeysMax; ++i) keys.push_back("k" + std::to_string(i));
    put(w, keys, std::vector<std::string>(keys.size(), "x"));
    w.now_ms += 1;
    get(w, keys);
    CHECK_EQUAL(w.cluster.locations().counts(w.now_ms).entries, 0U);
    keys.pop_back();
    get(w, keys);
    CHECK(w.cluster.locations().counts(w.now_ms).entries > 0);
    get(w, keys);  // this world remembers 64 keys, four of a set: not all of these
    CHECK(w.cluster.locations().counts(w.now_ms).hits > 0);
}

TEST(another_session_remembers_nothing) {
    Found w;
    const auto asked = w.cluster.location_stamp(w.now_ms);
    auto session = w.cluster.session();
    ++session.epoch;
    w.cluster.session_opened(session);
    Location into;
    CHECK(!w.cluster.recall("a", w.cluster.location_stamp(w.now_ms), into));
    // Nor what was asked before, and answered only now.
    w.cluster.remember("a", {1, 5, 1, {}}, asked, kTtlMs);
    CHECK(!w.cluster.recall("a", w.cluster.location_stamp(w.now_ms), into));
    w.cluster.remember("a", {1, 5, 1, {}}, w.cluster.location_stamp(w.now_ms), kTtlMs);
    CHECK(w.cluster.recall("a", w.cluster.location_stamp(w.now_ms), into));
    w.cluster.session_opened(session);  // the same again
    CHECK(w.cluster.recall("a", w.cluster.location_stamp(w.now_ms), into));
}

TEST(what_this_client_changed_is_not_remembered_from_before) {
    for (const bool is_put : {false, true}) {
        Found w;
        const auto asked = w.cluster.location_stamp(w.now_ms);
        w.now_ms += 5;
        if (is_put) {
            put(w, {"a"}, {"another"}, wire::kPutUpsert);
        } else {
            remove(w, "a");
        }
        Location into;
        CHECK(!w.cluster.recall("a", w.cluster.location_stamp(w.now_ms), into));
        w.cluster.remember("a", {1, 5, 1, {}}, asked, kTtlMs);  // an answer that was overtaken
        CHECK(!w.cluster.recall("a", w.cluster.location_stamp(w.now_ms), into));
        w.now_ms += 1;
        w.cluster.remember("a", {1, 5, 1, {}}, w.cluster.location_stamp(w.now_ms), kTtlMs);
        CHECK(w.cluster.recall("a", w.cluster.location_stamp(w.now_ms), into));
    }
}

// ---- the cache alone

TEST(an_earlier_questions_answer_does_not_replace_a_later_ones) {
    LocationCache cache(8);
    cache.remember("a", 1, {2, 5, 1, {}}, cache.stamp(10), 100);
    cache.remember("a", 1, {1, 5, 1, {}}, cache.stamp(9), 100);
    Location into;
    CHECK(cache.recall("a", 1, 50, into));
    CHECK_EQUAL(into.put_id, 2U);
}

TEST(keys_of_one_digest_are_kept_apart) {
    LocationCache cache(8);
    cache.remember("a", 1, {2, 5, 1, {}}, cache.stamp(10), 100);
    Location into;
    CHECK(!cache.recall("b", 1, 20, into));
    cache.remember("b", 1, {3, 5, 1, {}}, cache.stamp(10), 100);
    CHECK(cache.recall("a", 1, 20, into));
    CHECK_EQUAL(into.put_id, 2U);
}

TEST(it_holds_no_more_than_its_bound) {
    LocationCache cache(16);
    for (std::uint64_t i = 0; i < 1'000; ++i) {
        cache.remember(std::to_string(i), wire::key_digest("tenant", std::to_string(i)), {1, 5, 1, {}},
                       cache.stamp(i), 10'000);
    }
    const auto counts = cache.counts(1'000);
    CHECK_EQUAL(counts.entries, 16U);
    CHECK_EQUAL(counts.evicted, 984U);
    LocationCache off(0);
    off.remember("a", 1, {1, 5, 1, {}}, off.stamp(1), 100);
    Location into;
    CHECK(!off.recall("a", 1, 2, into));
}

TEST(reads_are_told_once_a_key_and_the_rest_is_counted) {
    LocationCache cache(8);
    cache.remember("a", 1, {1, 5, 1, {}}, cache.stamp(1), 100);
    CHECK_EQUAL(cache.accesses_due_ms(), ~std::uint64_t{0});
    for (int i = 0; i < 3; ++i) cache.accessed("a", 1, 40);
    cache.accessed("b", 2, 50);  // forgotten meanwhile
    CHECK_EQUAL(cache.accesses_due_ms(), 40 + kAccessDelayMs);
    const auto taken = cache.take_accesses();
    CHECK_EQUAL(taken.bytes, "ab");
    CHECK((taken.counts == std::vector<std::uint32_t>{3, 1}));
    CHECK(!cache.has_accesses());
    cache.accessed("a", 1, 60);  // in another round
    CHECK((cache.take_accesses().counts == std::vector<std::uint32_t>{1}));
    cache.lost_accesses(taken);
    for (std::size_t i = 0; i < kAccessesMax + 2; ++i) cache.accessed("b", 2, 70);
    CHECK_EQUAL(cache.counts(70).untold_accesses, 6U);
}

}  // namespace

int main(int argc, char** argv) { return check::run(argc, argv); }
