// What a master owes to readers who remember where it said a value lies: how long they may, and that nothing
// which ends a value is answered before that has passed unless every node knows it.
#include "master_world.h"

using namespace master_world;

namespace {

constexpr std::uint64_t kTimeoutMs = 1'000;

wire::LookupRecord look_up(Cluster& cluster, std::string_view key, std::uint32_t flags = 0) {
    const Buffer body = packed([&](auto& writer) {
        wire::encode_keys_request({cluster.session, 0, flags, 0}, {}, std::span(&key, 1), writer);
    });
    const auto answer = cluster.world.ask(Verb::kLookup, body, cluster.client.link);
    CHECK_EQUAL(*answer->status, Status::kOk);
    return wire::Places<wire::LookupRecord>::parse(answer->body)->record(0);
}
std::uint64_t told_ms(Cluster& cluster, std::string_view key, std::uint32_t flags = 0) {
    return look_up(cluster, key, flags).location_ttl * wire::kLocationTtlUnitMs;
}
Put put_upsert(Cluster& cluster, std::string_view key) {
    const auto body = cluster.world.put_start_body(cluster.session, key, kKiB, cluster.world.next_sequence(),
                                                   wire::kPutUpsert);
    return grant_of(cluster.world.ask(Verb::kPutStart, body, cluster.client.link));
}

// A second node, so that there is one to put to when the first has left.
struct TwoNodes : Cluster {
    explicit TwoNodes(DriverOptions options = {})
        : Cluster(options),
          other(wire::Role::kNode),
          other_session(world.open_session(3, other.link)),
          other_segment(world.mount(other_session, 1024 * kKiB, other.link)) {}

    // Until the first node is expelled for its silence, and no longer.
    void lose_node() {
        for (int i = 0; i < 240 && world.stat("segments_expelled_total") == 0; ++i) {
            world.pass(50);
            world.heartbeat(session, client.link);
            world.heartbeat(other_session, other.link);
        }
        CHECK_EQUAL(world.stat("segments_expelled_total"), 1u);
    }
    std::string key_on(wire::SegmentId wanted) {
        for (;;) {
            const std::string key = "key-" + std::to_string(next_key++);
            if (store(key, kKiB).place.segment == wanted) return key;
        }
    }
    int next_key = 0;
    Peer other;
    wire::SessionId other_session;
    wire::SegmentId other_segment;
};

}  // namespace

TEST(places_may_be_remembered_for_less_than_a_remove_may_wait) {
    Cluster cluster;
    cluster.store("key", kKiB);
    const auto ms = told_ms(cluster, "key");
    CHECK(ms <= kTimeoutMs - 2 * master::kClockPeriodMs);
    CHECK(ms >= kTimeoutMs - 2 * master::kClockPeriodMs - wire::kLocationTtlUnitMs);
    CHECK_EQUAL(told_ms(cluster, "key", wire::kWithoutHold), 0u);
    CHECK_EQUAL(told_ms(cluster, "no such key"), 0u);
}

TEST(a_master_that_waits_for_nobody_lets_nobody_remember) {
    for (const std::uint64_t timeout : {0U, 100U}) {
        DriverOptions options;
        options.remove_confirm_timeout_ms = timeout;
        Cluster cluster(options);
        cluster.store("key", kKiB);
        CHECK_EQUAL(told_ms(cluster, "key"), 0u);
    }
}

TEST(a_place_is_remembered_no_longer_than_its_value_lives) {
    Cluster cluster;
    const std::string_view key = "key";
    const std::uint64_t size = kKiB;
    const std::uint64_t no_parent = 0;
    wire::PutOptions options;
    options.ttl_ms = 400;
    const Buffer body = packed([&](auto& writer) {
        wire::encode_put_start({cluster.session, cluster.world.next_sequence(), 0, 0}, {}, options, {},
                               std::span(&key, 1), std::span(&size, 1), std::span(&no_parent, 1), writer);
    });
    const Put put = grant_of(cluster.world.ask(Verb::kPutStart, body, cluster.client.link));
    CHECK_EQUAL(only_status(cluster.world.put_end(cluster.session, put, cluster.client.link)), Status::kOk);
    CHECK_EQUAL(told_ms(cluster, "key"), 400u);
    cluster.world.pass(300);
    CHECK_EQUAL(told_ms(cluster, "key"), 96u);
}

TEST(a_clock_that_was_not_read_shortens_no_wait) {
    Cluster cluster;
    cluster.store("key", kKiB);
    cluster.world.starve(450);  // its thread did not run; the bounded clock catches up afterwards
    const auto removed = cluster.world.remove(cluster.session, "key", cluster.client.link);
    cluster.world.pass(kTimeoutMs - 50);
    CHECK(!removed->came());
    cluster.world.pass(100);
    CHECK_EQUAL(only_status(removed), Status::kOk);
}

// Its node may serve it to who remembers the place, and cannot be told.
TEST(what_lay_on_a_node_that_just_left_is_answered_late) {
    TwoNodes cluster;
    const auto key = cluster.key_on(cluster.segment);
    const auto replaced = cluster.key_on(cluster.segment);
    const auto later = cluster.key_on(cluster.segment);
    cluster.lose_node();
    const auto removed = cluster.world.remove(cluster.session, key, cluster.client.link);
    const Put put = put_upsert(cluster, replaced);
    const auto committed = cluster.world.put_end(cluster.session, put, cluster.client.link);
    const Put fresh = grant_of(cluster.world.put_start(cluster.session, "fresh", kKiB, cluster.client.link));
    CHECK(!removed->came() && !committed->came());
    CHECK_EQUAL(only_status(cluster.world.put_end(cluster.session, fresh, cluster.client.link)), Status::kOk);
    cluster.world.pass(kTimeoutMs);
    CHECK_EQUAL(only_status(removed), Status::kObjectNotFound);
    CHECK_EQUAL(only_status(committed), Status::kOk);
    // It left more than a second ago by now: nobody remembers its places.
    CHECK(cluster.world.remove(cluster.session, later, cluster.client.link)->came());
}

// However long removes may wait for confirmations.
TEST(nothing_waits_longer_than_places_are_remembered) {
    DriverOptions options;
    options.remove_confirm_timeout_ms = 600'000;
    TwoNodes cluster(options);
    const auto key = cluster.key_on(cluster.segment);
    CHECK_EQUAL(told_ms(cluster, key), wire::kLocationTtlMsMax);
    cluster.lose_node();
    const auto removed = cluster.world.remove(cluster.session, key, cluster.client.link);
    cluster.world.pass(wire::kLocationTtlMsMax);
    CHECK(!removed->came());
    cluster.world.pass(150);
    CHECK(removed->came());
}

TEST(a_full_parking_place_answers_no_commit_before_its_time) {
    DriverOptions options;
    options.parked_calls_max = 1;
    Cluster cluster(options);
    cluster.store("a", kKiB);
    cluster.store("b", kKiB);
    const Put put = put_upsert(cluster, "b");
    const Put third = put_upsert(cluster, "a");
    const auto first = cluster.world.remove(cluster.session, "a", cluster.client.link);
    const auto second = cluster.world.put_end(cluster.session, put, cluster.client.link);
    CHECK(!first->came() && !second->came());
    // At twice the limit it is not begun, so that its client may ask again.
    const auto full = cluster.world.put_end(cluster.session, third, cluster.client.link);
    CHECK_EQUAL(*full->status, Status::kBusy);
    cluster.world.confirm_all(cluster.node);
    CHECK_EQUAL(only_status(first), Status::kOk);
    CHECK_EQUAL(only_status(second), Status::kOk);
    CHECK_EQUAL(only_status(cluster.world.put_end(cluster.session, third, cluster.client.link)), Status::kOk);
}

TEST(reads_by_remembered_places_count_as_hits) {
    Cluster cluster;
    cluster.store("key", kKiB);
    look_up(cluster, "key");
    const std::vector<std::string_view> keys{"key", "gone"};
    const std::vector<std::uint32_t> counts{3, 5};
    Buffer body = packed([&](auto& writer) {
        wire::encode_keys_request({cluster.session, 0, wire::kReadBefore, 0}, {}, keys, writer, counts);
    });
    CHECK_EQUAL(*cluster.world.ask(Verb::kTouch, body, cluster.client.link)->status, Status::kOk);
    CHECK_EQUAL(cluster.world.stat("lookup_hits_total"), 4u);
    CHECK_EQUAL(cluster.world.stat("lookup_hit_bytes_total"), 4 * kKiB);
    CHECK_EQUAL(cluster.world.stat("remembered_hits_total"), 3u);
    body.pop_back();  // a count is missing
    CHECK(*cluster.world.ask(Verb::kTouch, body, cluster.client.link)->status != Status::kOk);
}

int main(int argc, char** argv) { return check::run(argc, argv); }
