// Which nodes a client's core dials, leaves out, asks again and forgets.
#include "client_world.h"

namespace mooncake::wire {
std::ostream& operator<<(std::ostream& out, Status status) { return out << status_name(status); }
}  // namespace mooncake::wire

namespace {

using namespace world;

// Found by the simulation: a put in a healthy cluster failed, because the client knew the address of its two
// nodes from processes that had died there, and had stopped to probe it when their segments were gone.
TEST(a_process_that_started_where_another_died_is_not_avoided) {
    World w;
    w.plant("a", "apple", {11});
    w.node(11).failure = Failure::kDial;
    CHECK_EQUAL(get(w, {"a"}).results[0].status, Status::kUnreachable);
    wire::SegmentInfo gone;
    gone.status = Status::kSegmentNotFound;
    gone.segment = 11;
    const std::vector<wire::SegmentId> asked{11};
    w.cluster.learn(asked, {&gone, 1});
    w.node(11).failure.reset();
    w.node(11).segment = 21;
    w.placement = {21};
    CHECK_EQUAL(put(w, {"b"}, {"berry"})[0], Status::kOk);
}

// Found by a newcomer: with the only node stopped, puts said that the pool was full.
TEST(a_pool_without_a_node_that_answers_is_told_from_a_full_one) {
    World w;
    w.placement = {11};
    w.node(11).failure = Failure::kDial;
    const std::vector<PutItem> items{{"b", 5, 0, wire::crc32c(0, "berry", 5), {}}};
    PutBatch ill(w.cluster, w.now_ms + 10'000, items, {});
    w.run(ill, {"berry"});
    CHECK_EQUAL(ill.statuses()[0], Status::kNoSpace);
    CHECK(ill.why().find("1 segments were left out") != std::string::npos);
    World full;
    full.placement = {};
    PutBatch none(full.cluster, full.now_ms + 10'000, items, {});
    full.run(none, {"berry"});
    CHECK_EQUAL(none.statuses()[0], Status::kNoSpace);
    CHECK(none.why().find("left out") == std::string::npos);
}

// Found by reading: every node that ever was, at whatever port it got, stayed in the client's tables for
// good.
TEST(nodes_that_come_and_go_by_the_thousand_are_forgotten) {
    World w;
    constexpr std::uint64_t kLifeMs = 1'000;
    std::size_t peers_most = 0;
    std::size_t segments_most = 0;
    for (wire::SegmentId life = 100; life < 5'100; ++life) {
        // Another node leaves, another one comes, each at a new port; what dies is often asked once more.
        const std::string endpoint = "tcp://node:" + std::to_string(life);
        w.nodes[life % 3] = {life, endpoint, {}, {}, Status::kOk, false, 0, 0, 0};
        w.placement = {life};
        const auto key = std::to_string(life);
        CHECK_EQUAL(put(w, {key}, {"value"}, wire::kPutUpsert)[0], Status::kOk);
        CHECK_EQUAL(get(w, {key}).values[0], "value");
        if (life % 2 == 0) w.nodes[life % 3].failure = Failure::kRefused;
        get(w, {key, "none"});
        w.objects.clear();
        w.now_ms += kLifeMs;
        w.probe();
        peers_most = std::max(peers_most, w.cluster.peer_count());
        segments_most = std::max(segments_most, w.cluster.segment_count());
    }
    CHECK(peers_most <= kSegmentsCheckMs / kLifeMs + 3);
    CHECK(segments_most <= 2 * kSegmentsCheckMs / kLifeMs + 3);
    CHECK(w.cluster.unreachable_count() <= 3);
    CHECK(w.probes > 0);
}

TEST(more_segments_than_are_remembered_are_learnt_anew) {
    World w;
    std::vector<wire::SegmentInfo> infos(kSegmentsKnownMax / 4);
    std::vector<std::string> endpoints(infos.size());
    std::vector<wire::SegmentId> asked(infos.size());
    for (wire::SegmentId first = 1'000; first < 1'000 + 2 * kSegmentsKnownMax; first += infos.size()) {
        for (std::size_t i = 0; i < infos.size(); ++i) {
            endpoints[i] = "tcp://node:" + std::to_string(first + i);
            asked[i] = infos[i].segment = first + i;
            infos[i].description.endpoints = {endpoints[i]};
        }
        w.cluster.learn(asked, infos);
        CHECK(w.cluster.route(first).kind == Route::Kind::kReachable);
        CHECK(w.cluster.segment_count() <= kSegmentsKnownMax);
        CHECK(w.cluster.peer_count() <= kSegmentsKnownMax);
    }
    // To hear of all of them again is no reason to forget any.
    const auto count = w.cluster.segment_count();
    CHECK_EQUAL(w.cluster.segments_to_check(w.now_ms).size(), count);
    w.cluster.learn(asked, infos);
    CHECK_EQUAL(w.cluster.segment_count(), count);
}

// Found by reading: the one that was known first was probed first, so that a few silent ones, each good for a
// second, kept the others waiting for ever.
TEST(one_that_answers_again_is_found_among_many_that_do_not) {
    World w;
    w.nodes.clear();
    constexpr wire::SegmentId kNodes = 300;  // more than get their turn before the first ones are due again
    std::vector<std::string> keys;
    for (wire::SegmentId segment = 1; segment <= kNodes; ++segment) {
        const std::string endpoint = "tcp://node:" + std::to_string(segment);
        w.nodes.push_back({segment, endpoint, {}, Failure::kDial, Status::kOk, false, 0, 0, 0});
        keys.push_back(std::to_string(segment));
        w.plant(keys.back(), "value", {segment});
    }
    get(w, keys);
    CHECK_EQUAL(w.cluster.unreachable_count(), kNodes);
    // The one that was met last comes back first.
    for (wire::SegmentId ill = kNodes; ill-- > 0;) {
        w.node(ill + 1).failure.reset();
        const auto since_ms = w.now_ms;
        while (w.cluster.unreachable_count() > ill) {
            const auto due = w.cluster.probes_due(w.now_ms);
            CHECK(due.size() <= kProbesMax);
            CHECK(w.cluster.probes_due(w.now_ms).empty() || due.size() < kProbesMax);
            w.now_ms = due.empty() ? std::max(w.now_ms + 1, w.cluster.next_probe_ms()) : w.now_ms + 1'000;
            for (const auto peer : due) {
                if (w.node_of(peer).failure) {
                    w.cluster.probe_failed(peer, Failure::kDial, w.now_ms);
                } else {
                    w.cluster.probe_answered(peer);
                }
            }
            CHECK(w.now_ms < since_ms + kProbeDelayMaxMs + 1'000 * (kNodes / kProbesMax + 2));
        }
    }
    CHECK_EQUAL(get(w, keys).values[0], "value");
}

// Its process greets whoever dials, and answers no request: each call that finds that out costs a stall.
TEST(a_peer_that_only_greets_is_tried_less_and_less_often) {
    World w;
    w.plant("a", "apple", {11});
    std::vector<std::uint64_t> waits;
    for (int i = 0; i < 8; ++i) {
        w.node(11).failure = Failure::kStalled;
        CHECK_EQUAL(get(w, {"a"}).results[0].status, Status::kUnreachable);
        const auto reads = w.node(11).reads;
        waits.push_back(w.cluster.next_probe_ms() - w.now_ms);
        get(w, {"a"});
        CHECK_EQUAL(w.node(11).reads, reads);
        w.now_ms = w.cluster.next_probe_ms();
        w.node(11).failure.reset();
        w.probe();
        CHECK_EQUAL(w.cluster.unreachable_count(), 0U);
    }
    CHECK_EQUAL(waits.front(), kProbeDelayMinMs);
    CHECK_EQUAL(waits.back(), kProbeDelayMaxMs);
    CHECK_EQUAL(get(w, {"a"}).values[0], "apple");  // which is proof
    w.node(11).failure = Failure::kStalled;
    get(w, {"a"});
    CHECK_EQUAL(w.cluster.next_probe_ms() - w.now_ms, kProbeDelayMinMs);
}

TEST(a_call_that_got_no_connection_of_its_own_client_blames_nobody) {
    World w;
    w.plant("a", "apple", {11});
    w.node(11).failure = Failure::kNotSent;
    for (int i = 0; i < 5; ++i) CHECK_EQUAL(get(w, {"a"}).results[0].status, Status::kBusy);
    CHECK_EQUAL(w.cluster.unreachable_count(), 0U);
    w.node(11).failure.reset();
    CHECK_EQUAL(get(w, {"a"}).values[0], "apple");
    w.node(11).failure = Failure::kNotSent;
    CHECK_EQUAL(put(w, {"b"}, {"berry"}, 0, 500)[0], Status::kBusy);
    CHECK_EQUAL(w.cluster.unreachable_count(), 0U);
    CHECK(w.unfinished.empty());
}

// A late answer says more than the probe that was sent before it.
TEST(a_request_that_is_answered_while_a_probe_fails_counts) {
    World w;
    w.plant("a", "apple", {11});
    w.node(11).failure = Failure::kDial;
    get(w, {"a"});
    w.now_ms = w.cluster.next_probe_ms();
    const auto due = w.cluster.probes_due(w.now_ms);
    CHECK_EQUAL(due.size(), 1U);
    w.cluster.peer_answered(due[0]);
    w.cluster.probe_failed(due[0], Failure::kDial, w.now_ms);
    CHECK_EQUAL(w.cluster.unreachable_count(), 0U);
    // What is said of one that was forgotten meanwhile is ignored.
    w.cluster.probe_answered(due[0] + 1'000);
    w.cluster.probe_failed(due[0] + 1'000, Failure::kDial, w.now_ms);
    w.cluster.peer_failed(due[0] + 1'000, Failure::kDial, w.now_ms);
    CHECK_EQUAL(w.cluster.peer_endpoint(due[0] + 1'000), "");
}

}  // namespace

int main(int argc, char** argv) { return check::run(argc, argv); }
