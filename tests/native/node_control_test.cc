// A node's life with its master, played by a script: mounting, retires, lost connections, expulsion, another
// master, leaving.
#include <optional>
#include <set>

#include "scripted_master.h"

namespace {

using namespace harness;

TEST(a_node_mounts_and_reports_what_it_holds_at_or_below_the_settled_id) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    node.write(replica_id(5));
    node.write(replica_id(9));
    master.change([&] { master.settled_id = replica_id(5); });
    wait_until("the report counts one", [&] {
        bool seen = false;
        master.change([&] {
            seen = !master.last_segments.empty() && master.last_segments[0].sealed_count == 1 &&
                   master.last_segments[0].sealed_checksum == wire::mix64(replica_id(5));
        });
        return seen;
    });
    CHECK_EQUAL(node.control->status().epoch, 1u);
    CHECK(!node.holdings->is_fenced());
}

TEST(a_report_names_the_settled_id_and_the_last_retire_that_its_counts_are_of) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    node.write(replica_id(5));
    master.retire(7, {replica_id(3)});
    master.journal.wait("retire answered");
    master.change([&] { master.settled_id = replica_id(6); });
    wait_until("the report is of that moment", [&] {
        bool seen = false;
        master.change([&] { seen = master.last_report == std::pair(std::uint64_t{7}, replica_id(6)); });
        return seen;
    });
}

TEST(a_master_that_counts_otherwise_is_told_what_is_settled_and_served) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    for (std::uint64_t id = 1; id <= 5; ++id) node.write(replica_id(id));
    master.retire(1, {replica_id(2)});
    master.journal.wait("retire answered");
    master.change([&] {
        master.settled_id = replica_id(4);
        master.comparison = 77;
        master.compared = node.control->status().segments.front();
    });
    wait_until("the list is told", [&] { return node.control->status().comparisons_total == 1; });
    master.change([&] {
        std::set<wire::ReplicaId> named;
        for (const auto& chunk : master.listed) {
            CHECK_EQUAL(chunk.comparison, 77u);
            named.insert(chunk.replicas.begin(), chunk.replicas.end());
        }
        CHECK((named == std::set<wire::ReplicaId>{replica_id(1), replica_id(3), replica_id(4)}));
    });
    CHECK_EQUAL(node.control->status().reports_total > 0, true);
}

TEST(a_retire_frees_at_once_what_nobody_reads_and_reports_the_rest_later) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    node.write(replica_id(1));
    node.write(replica_id(2));
    const auto view = node.open(replica_id(2));
    master.retire(7, {replica_id(1), replica_id(2), replica_id(3)});
    master.journal.wait("retire answered");
    master.change([&] {
        CHECK(master.retire_freed == (std::vector<wire::ReplicaId>{replica_id(1), replica_id(3)}));
        CHECK(master.freed.empty());
    });
    node.close(view);
    wait_until("the freed range is reported", [&] {
        bool seen = false;
        master.change([&] { seen = !master.freed.empty(); });
        return seen;
    });
    master.change([&] { CHECK(master.freed.front() == replica_id(2)); });
    CHECK_EQUAL(node.control->status().last_command_id, 7u);
}

TEST(freed_ranges_are_reported_again_until_a_report_is_answered) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    node.write(replica_id(1));
    const auto view = node.open(replica_id(1));
    master.retire(1, {replica_id(1)});
    master.journal.wait("retire answered");
    master.change([&] { master.answers_reports = false; });
    master.journal.wait("report unanswered");
    node.close(view);
    master.cut();
    master.journal.wait("mount", 2);
    master.journal.wait("report unanswered", 2);
    master.change([&] {
        CHECK(master.freed.empty());
        master.answers_reports = true;
    });
    master.cut();
    wait_until("the freed range is reported", [&] {
        bool seen = false;
        master.change([&] { seen = !master.freed.empty(); });
        return seen;
    });
    wait_until("it is acknowledged", [&] {
        return node.holdings->with_directory(
            [](node::Directory& directory) { return directory.pending_freed_count() == 0; });
    });
}

TEST(what_is_freed_while_a_report_travels_is_in_the_next_one) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    node.write(replica_id(1));
    node.write(replica_id(2));
    const auto first = node.open(replica_id(1));
    const auto second = node.open(replica_id(2));
    master.change([&] { master.on_freed = [&] { node.close(second); }; });
    master.retire(1, {replica_id(1), replica_id(2)});
    master.journal.wait("retire answered");
    node.close(first);
    wait_until("both freed ranges are reported", [&] {
        bool seen = false;
        master.change(
            [&] { seen = std::count(master.freed.begin(), master.freed.end(), replica_id(2)) > 0; });
        return seen;
    });
    wait_until("they are acknowledged", [&] {
        return node.holdings->with_directory(
            [](node::Directory& directory) { return directory.pending_freed_count() == 0; });
    });
}

TEST(a_retire_of_an_older_epoch_is_refused) {
    ScriptedMaster master(0, 3);
    ControlledNode node(master.port());
    node.mounted();
    const auto replica = wire::make_id(3, 1);
    node.write(replica);
    master.retire(1, {replica}, 2);
    master.journal.wait("retire refused");
    CHECK_EQUAL(master.journal.detail("retire refused"), "STALE_EPOCH");
    CHECK(node.open(replica).reference != nullptr);
}

TEST(a_short_loss_of_the_connection_costs_nothing) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    node.write(replica_id(1));
    const auto segment = node.segment();
    for (int mounts = 2; mounts < 5; ++mounts) {
        master.cut();
        master.journal.wait("mount", mounts);
    }
    node.mounted();
    CHECK_EQUAL(node.segment(), segment);
    CHECK(node.open(replica_id(1)).reference != nullptr);
    master.change(
        [&] { CHECK(std::set(master.incarnations.begin(), master.incarnations.end()).size() == 1); });
    CHECK_EQUAL(node.control->status().expulsions_total, 0u);
}

void expect_a_clean_return(ScriptedMaster& master, ControlledNode& node) {
    wait_until("the node is back", [&] {
        const auto status = node.control->status();
        return status.expulsions_total == 1 && status.mounted;
    });
    CHECK(node.open(replica_id(1)).reference == nullptr);
    CHECK_EQUAL(node.counts().replicas, 1u);  // the one that is still read
    master.change([&] {
        CHECK_EQUAL(master.incarnations.size(), 2u);
        CHECK(master.incarnations[0] != master.incarnations[1]);
    });
}

TEST(a_node_whose_session_is_unknown_returns_as_a_new_incarnation_without_its_data) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    node.write(replica_id(1));
    node.write(replica_id(2));
    const auto view = node.open(replica_id(2));
    master.change([&] { master.forgets_session = true; });
    expect_a_clean_return(master, node);
    node.close(view);
    CHECK_EQUAL(node.counts().used_bytes, 0u);
}

TEST(a_node_whose_segment_is_unknown_returns_as_a_new_incarnation_without_its_data) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    node.write(replica_id(1));
    node.write(replica_id(2));
    const auto view = node.open(replica_id(2));
    master.change([&] { master.unknown = node.segment(); });
    expect_a_clean_return(master, node);
    node.close(view);
    CHECK_EQUAL(node.counts().used_bytes, 0u);
}

TEST(a_new_master_of_the_same_epoch_is_followed_only_after_the_old_one_has_been_silent) {
    std::optional<ScriptedMaster> master(std::in_place);
    master->client_ttl_ms = 400;
    const auto port = master->port();
    ControlledNode node(port);
    node.mounted();
    node.write(replica_id(1));
    const auto old_segment = node.segment();
    master->stop();
    master.reset();
    const auto last_heard = node.holdings->heard_ms();
    ScriptedMaster second(port, 1, 2);
    second.epoch_after_mount = 2;
    second.journal.wait("mount");
    CHECK(net::boottime_ms() - last_heard >= 400);
    wait_until("the node is mounted", [&] { return node.control->status().mounted; });
    second.journal.wait("last inventory chunk");
    second.change([&] {
        CHECK_EQUAL(second.origin.known_epoch, 1u);
        CHECK_EQUAL(second.origin.known_master[0], 1);
        CHECK_EQUAL(second.origin.flags, wire::kMountWithInventory);
        CHECK(second.told == std::vector{replica_id(1)});
        CHECK_EQUAL(second.incarnations.size(), 1u);
    });
    CHECK_EQUAL(node.control->status().epoch, 2u);
    CHECK(node.segment() != old_segment);
    CHECK(node.open(replica_id(1)).reference != nullptr);
    CHECK_EQUAL(node.control->status().expulsions_total, 0u);
}

// A node of `count` values whose master is gone; the next one listens on the same port.
struct Orphaned {
    explicit Orphaned(std::uint64_t count) {
        ScriptedMaster first;
        port = first.port();
        node.emplace(port, std::uint64_t{4} << 20);
        node->mounted();
        for (std::uint64_t i = 1; i <= count; ++i) node->write(replica_id(i));
        first.stop();
    }
    std::uint16_t port = 0;
    std::optional<ControlledNode> node;
};

TEST(a_master_of_a_higher_epoch_is_told_every_value_in_chunks) {
    constexpr std::uint64_t kCount = 20'000;  // headers of 70 bytes: two chunks
    Orphaned orphaned(kCount);
    ScriptedMaster second(orphaned.port, 2, 2);
    second.journal.wait("last inventory chunk");
    second.change([&] {
        CHECK_EQUAL(second.told.size(), kCount);
        CHECK_EQUAL(std::set(second.told.begin(), second.told.end()).size(), kCount);
    });
    CHECK(second.journal.count("inventory chunk") >= 1);
    wait_until("the inventory is over",
               [&] { return orphaned.node->control->status().inventories_total == 1; });
    CHECK_EQUAL(orphaned.node->control->status().reported_replicas_total, kCount);
    second.cut();
    second.journal.wait("mount", 2);
    orphaned.node->mounted();
    second.change([&] { CHECK_EQUAL(second.origin.flags, 0u); });  // the same master is not told again
}

TEST(what_a_master_would_have_the_next_one_know_is_handed_over_before_the_inventory) {
    wire::Tombstones kept;
    kept.replicas = {replica_id(8)};
    auto first = std::make_unique<ScriptedMaster>();
    ControlledNode node(first->port());
    node.mounted();
    node.write(replica_id(1));
    first->change([&] {
        first->tombstones = kept;
        first->tombstones_generation = 1;
    });
    first->journal.wait("tombstones asked for");
    wait_until("it is not asked for again", [&] {
        const auto before = first->journal.count("report");
        wait_until("more reports", [&] { return first->journal.count("report") > before + 2; });
        return first->journal.count("tombstones asked for") == 1;
    });
    const std::uint16_t port = first->port();
    first->stop();
    first.reset();
    ScriptedMaster second(port, 2, 2);
    second.journal.wait("last inventory chunk");
    second.change([&] { CHECK(second.handed == kept); });
    second.change([&] { CHECK(second.handed_before_inventory); });
    CHECK_EQUAL(second.journal.count("tombstones handed over"), 1);
    // Its own, from now on: the same master is not told what it told.
    second.change([&] { second.tombstones_generation = 7; });
    second.journal.wait("tombstones asked for");
}

TEST(a_node_that_did_not_hear_its_masters_end_lets_others_go_first) {
    for (const std::uint64_t epoch : {std::uint64_t{2}, std::uint64_t{3}}) {
        auto first = std::make_unique<ScriptedMaster>();
        ControlledNode node(first->port());
        node.mounted();
        node.write(replica_id(1));
        first->change([&] { first->answers_reports = false; });
        first->journal.wait("report unanswered");
        wait_until("it is out of touch",
                   [&] { return net::boottime_ms() - node.holdings->heard_ms() > 20 + 100; });
        const std::uint16_t port = first->port();
        first->stop();
        first.reset();
        ScriptedMaster second(port, epoch, 2);
        second.journal.wait("open_session");
        const std::uint64_t met_ms = net::boottime_ms();
        second.journal.wait("mount");
        // The next number is the same memory's, kept in a file: it needs no other node.
        if (epoch == 3) CHECK(net::boottime_ms() - met_ms + 1 >= kHoldBackMs);
        if (epoch == 2) CHECK_EQUAL(second.journal.count("open_session"), 1);
        second.journal.wait("last inventory chunk");
    }
}

TEST(an_inventory_that_is_refused_or_cut_off_begins_again) {
    Orphaned orphaned(3);
    ScriptedMaster second(orphaned.port, 2, 2, Status::kOk, Status::kInvalidParams);
    second.journal.wait("last inventory chunk", 2);
    second.change([&] { second.inventory_status = Status::kOk; });
    wait_until("the inventory is over",
               [&] { return orphaned.node->control->status().inventories_total == 1; });
    second.change([&] {
        CHECK_EQUAL(second.told.size(), 3u);
        CHECK_EQUAL(second.origin.flags, wire::kMountWithInventory);
    });
}

TEST(a_node_that_comes_too_late_gives_up_what_it_holds) {
    Orphaned orphaned(3);
    ScriptedMaster second(orphaned.port, 2, 2, Status::kStaleEpoch);
    wait_until("the node starts over", [&] { return orphaned.node->control->status().expulsions_total > 0; });
    second.change([&] { second.mount_status = Status::kOk; });
    wait_until("the node is mounted", [&] { return orphaned.node->control->status().mounted; });
    CHECK(orphaned.node->open(replica_id(1)).reference == nullptr);
    CHECK_EQUAL(orphaned.node->counts().used_bytes, 0u);
    second.change([&] { CHECK_EQUAL(second.origin.flags, 0u); });
}

TEST(a_write_that_an_earlier_master_granted_is_cancelled_by_the_next) {
    ScriptedMaster first;
    ControlledNode node(first.port());
    node.mounted();
    node.holdings->with_directory([&](node::Directory& directory) {
        const wire::WriteItem item{replica_id(7), directory.segment_id(0), 100, 0, 0};
        CHECK(directory.begin_write(item, header_of(replica_id(7), 100), 1).status == Status::kOk);
    });
    const auto port = first.port();
    first.stop();
    ScriptedMaster second(port, 2, 2);
    second.journal.wait("last inventory chunk");
    node.holdings->with_directory(
        [&](node::Directory& directory) { CHECK(directory.seal(replica_id(7)) == Status::kStaleGrant); });
    second.change([&] { CHECK(second.told.empty()); });
    CHECK_EQUAL(node.counts().used_bytes, 0u);
}

TEST(a_refused_mount_is_tried_again_and_says_why) {
    ScriptedMaster master;
    master.mount_status = Status::kSegmentAlreadyExists;
    ControlledNode node(master.port());
    master.journal.wait("mount", 2);
    CHECK(!node.control->status().mounted);
    const auto error = node.control->status().last_error;
    CHECK(error.find("segment: ") != std::string::npos &&
          error.find("refused to mount") != std::string::npos);
    master.change([&] { master.mount_status = Status::kOk; });
    node.mounted();
}

TEST(a_node_that_gets_no_answers_is_fenced_and_serves_again_when_it_does) {
    ScriptedMaster master;
    master.client_ttl_ms = 300;
    ControlledNode node(master.port());
    node.mounted();
    node.write(replica_id(1));
    master.change([&] { master.answers_reports = false; });
    wait_until("the node is fenced", [&] { return node.holdings->is_fenced(); });
    CHECK(node.open(replica_id(1)).reference == nullptr);
    master.change([&] { master.answers_reports = true; });
    master.cut();
    wait_until("the node serves again", [&] { return !node.holdings->is_fenced(); });
    CHECK(node.open(replica_id(1)).reference != nullptr);
}

TEST(a_master_that_is_not_there_yet_is_found_when_it_comes) {
    std::uint16_t port = 0;
    {
        ScriptedMaster reserved;
        port = reserved.port();
        reserved.stop();
    }
    ControlledNode node(port);
    wait_until("the refusal is told", [&] { return !node.control->status().last_error.empty(); });
    CHECK(!node.control->status().mounted);
    ScriptedMaster master(port);
    node.mounted();
}

TEST(a_node_that_stops_unmounts_and_closes_its_session) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    node.control->stop();
    CHECK_EQUAL(master.journal.count("unmount"), 1);
    CHECK_EQUAL(master.journal.count("close_session"), 1);
    CHECK(!node.control->status().mounted);
}

TEST(a_node_stops_though_its_master_answers_nothing) {
    ScriptedMaster master;
    ControlledNode node(master.port());
    node.mounted();
    master.change([&] { master.answers_reports = false; });
    master.journal.wait("report unanswered");
    const auto began = net::monotonic_ms();
    node.control->stop();
    CHECK(net::monotonic_ms() - began < 20'000);
}

TEST(random_answers_of_a_master_leave_the_node_trying) {
    net::LoopThreads loops("noise", 1);
    Journal journal;
    std::atomic<std::uint32_t> seed = 0;
    net::Server server(loops, ScriptedMaster::options(0), [&] {
        return std::make_unique<Handler>(
            journal, [&](net::Connection& connection, const wire::FrameHeader& header, wire::Bytes) {
                const std::uint32_t n = ++seed;
                connection.send(make_frame(header.verb, header.request_id, pattern(n % 60, n),
                                           n % 3 == 0 ? 0 : wire::kFlagReply));
                journal.note("answered");
            });
    });
    ControlledNode node(server.port());
    journal.wait("answered", 60);
    CHECK(!node.control->status().mounted);
    node.control->stop();
    server.stop();
}

}  // namespace

int main(int argc, char** argv) { return check::run(argc, argv); }
