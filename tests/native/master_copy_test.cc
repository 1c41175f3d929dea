// Copies as the master's driver handles them: told to the target's node, told again on its next connection,
// answered by it alone.
#include "master_world.h"

using namespace master_world;

namespace {

// A value on a node that is about to leave, and another node that is to fetch it.
struct Leaving {
    Leaving()
        : other(wire::Role::kNode),
          other_session((cluster.store("key", 4 * kKiB), cluster.world.open_session(3, other.link))),
          target_segment(cluster.world.mount(other_session, 1024 * kKiB, other.link)) {
        drain();
        cluster.world.tick();
    }

    wire::DrainReply drain() {
        const auto answer =
            cluster.world.ask(Verb::kDrain, packed([&](auto& writer) {
                                  wire::encode_segment_ids({cluster.node_session, 0, 0, 0},
                                                           std::span(&cluster.segment, 1), writer);
                              }),
                              cluster.node.link);
        CHECK_EQUAL(*answer->status, Status::kOk);
        return *wire::parse_drain_reply(answer->body);
    }
    bool answer(Peer& by, wire::ReplicaId target, Status status, Status frame = Status::kOk) {
        const Buffer body =
            packed([&](auto& writer) { wire::encode(wire::CopyReply{target, status}, writer); });
        const bool is_sound = cluster.world.driver.copy_answered(by.link, frame, body);
        cluster.world.driver.check_invariants();
        return is_sound;
    }

    Cluster cluster;
    Peer other;
    wire::SessionId other_session;
    wire::SegmentId target_segment;
};

}  // namespace

TEST(copy_is_told_to_the_targets_node_and_moves_the_value) {
    Leaving world;
    const auto ordered = world.other.take_copies();
    CHECK_EQUAL(ordered.size(), 1u);
    CHECK(world.cluster.node.take_copies().empty());
    CHECK_EQUAL(world.drain().left_count, 1u);
    CHECK(world.answer(world.other, ordered[0], Status::kOk));
    CHECK_EQUAL(world.cluster.node.take_commands().size(), 1u);  // the source retires
    const auto told = world.drain();
    CHECK_EQUAL(told.moved_count, 1u);
    CHECK_EQUAL(told.left_count, 0u);
    world.cluster.world.unmount(world.cluster.node_session, world.cluster.segment, world.cluster.node.link);
    world.cluster.world.tick();
    CHECK_EQUAL(world.cluster.world.exists(world.cluster.session, "key", world.cluster.client.link),
                Status::kOk);
}

TEST(copy_is_told_again_on_the_nodes_next_connection) {
    Leaving world;
    const auto ordered = world.other.take_copies();
    world.cluster.world.driver.link_closed(world.other.link);
    Peer again(wire::Role::kNode);
    CHECK_EQUAL(world.cluster.world.open_session(3, again.link), world.other_session);
    CHECK(again.take_copies() == ordered);
    CHECK(world.answer(world.other, ordered[0], Status::kOk));  // over the connection that ended: nobody's
    CHECK_EQUAL(world.cluster.world.stat("copy_count"), 1u);
    CHECK(world.answer(again, ordered[0], Status::kSealed));
    CHECK_EQUAL(world.cluster.world.stat("copies_committed_total"), 1u);
}

TEST(copy_is_answered_by_its_own_node_only) {
    Leaving world;
    const auto ordered = world.other.take_copies();
    CHECK(world.answer(world.cluster.node, ordered[0], Status::kOk));
    CHECK(world.answer(world.cluster.client, ordered[0], Status::kGone));
    CHECK(world.answer(world.other, ordered[0] + 1, Status::kOk));
    CHECK_EQUAL(world.cluster.world.stat("copy_count"), 1u);
    CHECK(world.answer(world.other, ordered[0], Status::kOk));
    CHECK(world.answer(world.other, ordered[0], Status::kGone));  // once more, otherwise
    CHECK_EQUAL(world.cluster.world.stat("copies_committed_total"), 1u);
    CHECK_EQUAL(world.cluster.world.stat("copies_failed_total"), 0u);
}

TEST(copy_that_is_refused_ends_the_connection_and_a_malformed_answer_is_told) {
    Leaving world;
    const auto ordered = world.other.take_copies();
    CHECK(!world.cluster.world.driver.copy_answered(world.other.link, Status::kOk, Buffer(3, 0)));
    CHECK(world.answer(world.other, ordered[0], Status::kOk, Status::kStaleEpoch));
    CHECK(!world.other.closed.empty());
    CHECK_EQUAL(world.cluster.world.stat("copy_refusals_total"), 1u);
    CHECK_EQUAL(world.cluster.world.stat("copy_count"), 1u);
}

TEST(copy_that_nobody_carries_out_ends_by_its_deadline) {
    metadata::Options options;
    Leaving world;
    CHECK_EQUAL(world.other.take_copies().size(), 1u);
    for (std::uint64_t gone = 0; gone <= options.copy_timeout_ms; gone += 1'000) {
        world.cluster.world.heartbeat(world.cluster.node_session, world.cluster.node.link);
        world.cluster.world.heartbeat(world.other_session, world.other.link);
        world.cluster.world.heartbeat(world.cluster.session, world.cluster.client.link);
        world.cluster.world.pass(1'000);
    }
    CHECK_EQUAL(world.cluster.world.stat("copies_timed_out_total"), 1u);
    CHECK_EQUAL(world.cluster.world.exists(world.cluster.session, "key", world.cluster.client.link),
                Status::kOk);
}

int main(int argc, char** argv) { return check::run(argc, argv); }
