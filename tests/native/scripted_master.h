// A node's control connection with a master that is played by a script; for the tests of native/node/control.
#pragma once

#include <optional>
#include <set>

#include "node/control.h"
#include "node_harness.h"
#include "wire/control.h"
#include "wire/tombstones.h"

namespace harness {

using wire::Status;
using wire::Verb;

// Answers as a master of one epoch would; what a test wants otherwise it sets.
class ScriptedMaster {
  public:
    explicit ScriptedMaster(std::uint16_t port = 0, std::uint64_t epoch = 1, std::uint8_t uuid = 1,
                            Status mount = Status::kOk, Status inventory = Status::kOk)
        : mount_status(mount),
          inventory_status(inventory),
          epoch_(epoch),
          uuid_{uuid},
          loops_("master", 1),
          server_(loops_, options(port), [this] {
              return std::make_unique<Handler>(
                  journal, [this](net::Connection& connection, const auto& header, wire::Bytes body) {
                      answer(connection, header, body);
                  });
          }) {}
    static net::Server::Options options(std::uint16_t port) {
        net::Server::Options made;
        made.host = "127.0.0.1";
        made.port = port;
        return made;
    }
    std::uint16_t port() const { return server_.port(); }
    void stop() { server_.stop(); }

    void retire(std::uint64_t command_id, std::vector<wire::ReplicaId> replicas, std::uint64_t epoch = 1) {
        wire::Buffer body;
        wire::Writer writer(body);
        wire::encode_retire(command_id, replicas, writer);
        wire::Buffer frame = with_epoch(make_frame(Verb::kRetire, command_id, body), epoch);
        const std::lock_guard lock(mutex_);
        CHECK(connection_ != nullptr);
        connection_->send(std::move(frame));
    }
    void copy(const wire::Copy& order, std::uint64_t epoch = 1) {
        wire::Buffer body;
        wire::Writer writer(body);
        wire::encode(order, writer);
        wire::Buffer frame = with_epoch(make_frame(Verb::kCopy, order.target, body), epoch);
        const std::lock_guard lock(mutex_);
        CHECK(connection_ != nullptr);
        connection_->send(std::move(frame));
    }
    void cut() {
        const std::lock_guard lock(mutex_);
        if (connection_) connection_->close("cut");
    }
    template <class Change>
    void change(Change&& changed) {
        const std::lock_guard lock(mutex_);
        changed();
    }

    Journal journal;
    // Guarded by mutex_, through change().
    std::uint32_t client_ttl_ms = 10'000;
    bool answers_reports = true;
    bool forgets_session = false;            // the next report is answered SESSION_UNKNOWN
    std::optional<wire::SegmentId> unknown;  // named in the next report's answer
    Status mount_status;
    Status inventory_status;
    std::uint64_t epoch_after_mount = 0;  // 0: as before
    wire::ReplicaId settled_id = 0;
    std::uint64_t comparison = 0;  // asked for in every report's answer
    wire::SegmentId compared = 0;
    std::pair<std::uint64_t, wire::ReplicaId> last_report;  // its last_command_id and settled_id
    std::vector<wire::SettledHoldings> listed;              // chunks, in order
    std::uint64_t tombstones_generation = 0;
    wire::Tombstones tombstones;             // what nodes are to keep
    std::optional<wire::Tombstones> handed;  // by the node, as another master's
    bool handed_before_inventory = false;
    std::vector<wire::ReplicaId> freed;  // reported, in order
    std::function<void()> on_freed;      // once, when a report names some, before it is answered
    std::vector<wire::ReplicaId> retire_freed;
    std::vector<wire::SegmentReport> last_segments;
    std::vector<wire::Uuid> incarnations;  // mounted, in order
    wire::MountOrigin origin;              // of the last mount
    std::vector<wire::ReplicaId> told;     // by inventory since the last first chunk, in order
    wire::InventoryTotals totals;          // as counted here
    Status drain_status = Status::kOk;
    std::uint64_t moved = 0;
    std::uint64_t left_to_move = 0;
    std::function<void()> on_unmount;  // before it is answered
    std::vector<wire::CopyReply> copied;

  private:
    static wire::Buffer with_epoch(wire::Buffer frame, std::uint64_t epoch, Status status = Status::kOk) {
        wire::FrameHeader header = *wire::parse_frame_header(frame);
        header.epoch = epoch;
        header.status = status;
        std::memcpy(frame.data(), &header, sizeof header);
        return frame;
    }
    void reply(net::Connection& connection, const wire::FrameHeader& request, wire::Bytes body,
               Status status = Status::kOk) {
        connection.send(
            with_epoch(make_frame(request.verb, request.request_id, body, wire::kFlagReply), epoch_, status));
    }
    void refuse(net::Connection& connection, const wire::FrameHeader& request, Status status) {
        connection.send(wire::refusal(request, status, "as the test wants", epoch_));
    }

    void answer(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
        const std::lock_guard lock(mutex_);
        wire::Buffer out;
        wire::Writer writer(out);
        if (header.is_reply()) return on_reply(header, body);
        switch (header.verb) {
            case Verb::kHello: {
                CHECK(wire::parse_hello(body)->role == wire::Role::kNode);
                connection_ = connection.shared_from_this();
                wire::Welcome welcome;
                welcome.process = uuid_;
                wire::encode(welcome, writer);
                break;
            }
            case Verb::kOpenSession: {
                const auto process = wire::parse_open_session(body)->process;
                if (!sessions_.contains(process)) sessions_[process] = ++last_session_;
                wire::OpenSessionReply opened;
                opened.session = sessions_[process] * 100 + uuid_[0];
                opened.epoch = epoch_;
                opened.master = uuid_;
                opened.client_ttl_ms = client_ttl_ms;
                opened.heartbeat_interval_ms = 20;
                wire::encode(opened, writer);
                journal.note("open_session");
                break;
            }
            case Verb::kMount:
                on_mount(*wire::parse_mount(body), writer);
                break;
            case Verb::kReport:
                if (!answers_reports) return journal.note("report unanswered");
                if (forgets_session) {
                    forgets_session = false;
                    sessions_.clear();
                    return refuse(connection, header, Status::kSessionUnknown);
                }
                on_report(*wire::parse_report(body), writer);
                break;
            case Verb::kTombstones: {
                const auto asked = *wire::parse_tombstones_request(body);
                if (asked.kept) handed = asked.kept;
                wire::Buffer kept;
                wire::Writer kept_writer(kept);
                wire::encode(tombstones, kept_writer);
                wire::encode_tombstones_reply(tombstones_generation, kept, writer);
                journal.note(asked.kept ? "tombstones handed over" : "tombstones asked for");
                break;
            }
            case Verb::kHoldings:
                listed.push_back(*wire::parse_holdings(body));
                if ((listed.back().flags & wire::kHoldingsLast) != 0) comparison = 0;
                break;
            case Verb::kInventory:
                on_inventory(*wire::parse_inventory(body));
                if (!wire::ok(inventory_status)) return refuse(connection, header, inventory_status);
                break;
            case Verb::kDrain: {
                CHECK_EQUAL(wire::parse_segment_ids(body)->ids.size(), 1u);
                if (!wire::ok(drain_status)) return refuse(connection, header, drain_status);
                wire::encode(wire::DrainReply{moved, left_to_move}, writer);
                break;
            }
            case Verb::kUnmount:
                if (on_unmount) on_unmount();
                journal.note("unmount");
                wire::encode_statuses(std::vector<Status>{Status::kOk}, writer);
                break;
            default:
                journal.note(wire::verb_name(header.verb));
        }
        reply(connection, header, out);
        if (header.verb == Verb::kMount) journal.note("mount");
        if (header.verb == Verb::kReport) journal.note("report");
        if (header.verb == Verb::kDrain) journal.note("drain");
    }
    void on_mount(const wire::Mount& mount, wire::Writer& writer) {
        origin = mount.origin;
        if (epoch_after_mount != 0) epoch_ = epoch_after_mount;
        CHECK_EQUAL(mount.segments.size(), 1u);
        const auto incarnation = mount.segments[0].incarnation;
        incarnations.push_back(incarnation);
        if (!segments_.contains(incarnation)) {
            segments_[incarnation] = wire::make_id(epoch_, 1000 + segments_.size());
        }
        const wire::MountAnswer answer{mount_status, segments_[incarnation]};
        wire::encode_mount_reply({&answer, 1}, writer);
    }
    void on_inventory(const wire::Inventory& message) {
        if ((message.flags & wire::kInventoryFirst) != 0) {
            told.clear();
            handed_before_inventory = handed.has_value();
            totals = {};
        }
        for (std::size_t i = 0; i < message.items.size(); ++i) {
            const auto& item = message.items[i];
            CHECK_EQUAL(item.segment, segments_[incarnations.back()]);
            CHECK_EQUAL(std::string(message.headers[i].key), key_of(item.replica));
            told.push_back(item.replica);
            totals.add(item.replica);
        }
        CHECK(totals == message.totals);
        journal.note((message.flags & wire::kInventoryLast) != 0 ? "last inventory chunk"
                                                                 : "inventory chunk");
    }
    void on_report(const wire::Report& report, wire::Writer& writer) {
        freed.insert(freed.end(), report.freed.begin(), report.freed.end());
        if (!report.freed.empty() && on_freed) std::exchange(on_freed, nullptr)();
        last_segments = report.segments;
        std::vector<wire::SegmentId> gone;
        if (unknown) {
            gone.push_back(*unknown);
            sessions_.clear();
        }
        unknown.reset();
        last_report = {report.last_command_id, report.settled_id};
        wire::encode_report_reply({settled_id, tombstones_generation, comparison, compared, gone}, writer);
    }
    void on_reply(const wire::FrameHeader& header, wire::Bytes body) {
        if (header.verb == Verb::kCopy) {
            if (!wire::ok(header.status))
                return journal.note("copy refused", wire::status_name(header.status));
            const auto answer = wire::parse_copy_reply(body);
            CHECK(answer && answer->target == header.request_id);
            copied.push_back(*answer);
            return journal.note("copy answered", wire::status_name(answer->status));
        }
        CHECK(header.verb == Verb::kRetire);
        if (!wire::ok(header.status)) return journal.note("retire refused", wire::status_name(header.status));
        const auto reply = wire::parse_retire_reply(body);
        CHECK(reply.has_value());
        retire_freed.insert(retire_freed.end(), reply->freed.begin(), reply->freed.end());
        journal.note("retire answered");
    }

    std::mutex mutex_;
    std::uint64_t epoch_;
    wire::Uuid uuid_{};
    std::map<wire::Uuid, std::uint64_t> sessions_;
    std::map<wire::Uuid, wire::SegmentId> segments_;
    std::uint64_t last_session_ = 0;
    std::shared_ptr<net::Connection> connection_;
    net::LoopThreads loops_;
    net::Server server_;
};

inline constexpr std::uint64_t kHoldBackMs = 300;

struct ControlledNode {
    explicit ControlledNode(std::uint16_t port, std::uint64_t bytes = 1u << 20) {
        std::vector<std::unique_ptr<node::MemorySegment>> memory;
        memory.push_back(std::make_unique<node::MemorySegment>("test", bytes, node::MemoryOptions{}));
        holdings = std::make_shared<node::Holdings>(std::move(memory));
        node::ControlOptions options;
        options.lane = net::Endpoint{"127.0.0.1", port};
        options.segments.push_back({"segment", {"tcp://127.0.0.1:9"}});
        options.retry_min_ms = 1;
        options.retry_max_ms = 20;
        options.hold_back_ms = kHoldBackMs;
        control = std::make_unique<node::Control>(holdings, options, [](const wire::Uuid&) {});
        control->start();
    }
    void mounted() { CHECK(control->wait_mounted(kHangMs)); }
    wire::SegmentId segment() { return control->status().segments.at(0); }
    void write(wire::ReplicaId replica) {
        holdings->with_directory([&](node::Directory& directory) {
            const auto header = header_of(replica, 100);
            wire::WriteItem item{replica, directory.segment_id(0), 100, 0, 0};
            CHECK(directory.begin_write(item, header, directory.epoch()).status == Status::kOk);
            CHECK(directory.seal(replica) == Status::kOk);
        });
    }
    node::Directory::View open(wire::ReplicaId replica) {
        return holdings->with_directory(
            [&](node::Directory& directory) { return directory.open(replica, read_item(replica).digest); });
    }
    void close(node::Directory::View view) {
        holdings->with_directory([&](node::Directory& directory) { directory.close(view.reference); });
    }
    node::Directory::Counts counts() {
        return holdings->with_directory([](node::Directory& directory) {
            directory.check_invariants();
            return directory.counts();
        });
    }

    std::shared_ptr<node::Holdings> holdings;
    std::unique_ptr<node::Control> control;
};

}  // namespace harness
