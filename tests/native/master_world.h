// A master's driver with peers that are links whose frames a test reads; for the tests of native/master.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "check.h"
#include "master/bounded_clock.h"
#include "master/link.h"
#include "master/retire_queues.h"
#include "master/state_driver.h"
#include "wire/control.h"
#include "wire/lane.h"

namespace mooncake::wire {

static std::ostream& operator<<(std::ostream& out, Status status) { return out << status_name(status); }

}  // namespace mooncake::wire

namespace master_world {

using namespace mooncake;
using master::BoundedClock;
using master::DriverOptions;
using master::LinkPtr;
using master::RetireQueues;
using master::StateDriver;
using wire::Buffer;
using wire::Status;
using wire::Verb;

inline constexpr std::uint64_t kKiB = 1024;

inline Buffer packed(const std::function<void(wire::Writer&)>& encode) {
    Buffer body;
    wire::Writer writer(body);
    encode(writer);
    return body;
}

inline wire::Uuid uuid_of(std::uint8_t number) {
    wire::Uuid uuid{};
    uuid.fill(number);
    return uuid;
}

// An answer that has come or has not.
struct Answer {
    std::optional<Status> status;
    Buffer body;
    bool came() const { return status.has_value(); }
};
using AnswerPtr = std::shared_ptr<Answer>;

// A link whose other end is the test.
struct Peer {
    explicit Peer(wire::Role role)
        : link(std::make_shared<master::Link>(
              role, [this](Buffer frame) { frames.push_back(std::move(frame)); },
              [this](std::string why) { closed = std::move(why); })) {}
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;

    // Takes the retire commands that came since the last call.
    std::vector<wire::Retire> take_commands() {
        std::vector<wire::Retire> commands;
        for (const auto& frame : std::exchange(frames, {})) {
            const auto header = wire::parse_frame_header(wire::Bytes(frame));
            CHECK(header && header->verb == Verb::kRetire && !header->is_reply());
            auto command = wire::parse_retire(wire::Bytes(frame).subspan(wire::kFrameHeaderBytes));
            CHECK(command.has_value());
            commands.push_back(std::move(*command));
        }
        return commands;
    }

    // Takes the copies that were ordered since the last call; other frames stay.
    std::vector<wire::ReplicaId> take_copies() {
        std::vector<wire::ReplicaId> targets;
        std::erase_if(frames, [&](const Buffer& frame) {
            const auto header = wire::parse_frame_header(wire::Bytes(frame));
            if (header->verb != Verb::kCopy) return false;
            const auto copy = wire::parse_copy(wire::Bytes(frame).subspan(wire::kFrameHeaderBytes));
            CHECK(copy && copy->target == header->request_id);
            targets.push_back(copy->target);
            return true;
        });
        return targets;
    }

    std::vector<Buffer> frames;
    std::string closed;
    LinkPtr link;
};

struct Put {
    Status status = Status::kOk;
    wire::PutId put_id = 0;
    wire::ReplicaPlace place;
};

// A master with one client and one node, and the bodies they send.
class World {
  public:
    explicit World(DriverOptions options = {}, metadata::Options metadata = {})
        : clock(500), driver(metadata, timed(std::move(options)), 1, uuid_of(9), 42, clock) {
        clock.advance(reading_ms_);
    }

    // What the driver takes for true time is what its clock reads, and what the test lets pass without it.
    DriverOptions timed(DriverOptions options) {
        options.steady_ms = [this] { return reading_ms_; };
        return options;
    }
    // No reading is made meanwhile.
    void starve(std::uint64_t ms) { reading_ms_ += ms; }

    // Time goes on in readings of 50 ms, each with its ticks.
    void pass(std::uint64_t ms) {
        for (std::uint64_t gone = 0; gone < ms; gone += master::kClockPeriodMs) {
            reading_ms_ += std::min(ms - gone, master::kClockPeriodMs);
            clock.advance(reading_ms_);
            tick();
        }
    }
    void stand_still(std::uint64_t ms) {
        reading_ms_ += ms;
        clock.advance(reading_ms_);
        tick();
    }
    void tick() {
        for (int i = 0; i < 1000 && !driver.tick(); ++i) {
        }
        driver.check_invariants();
    }

    AnswerPtr ask(Verb verb, const Buffer& body, const LinkPtr& link = nullptr) {
        auto answer = std::make_shared<Answer>();
        driver.submit(verb, body, link, [answer](Status status, Buffer reply) {
            CHECK(!answer->came());
            answer->status = status;
            answer->body = std::move(reply);
        });
        driver.check_invariants();
        return answer;
    }

    wire::SessionId open_session(std::uint8_t process, const LinkPtr& link) {
        wire::OpenSession message;
        message.process = uuid_of(process);
        message.name = "test";
        message.host_id = "host-a";
        const auto answer =
            ask(Verb::kOpenSession, packed([&](auto& writer) { wire::encode(message, writer); }), link);
        CHECK_EQUAL(*answer->status, Status::kOk);
        return wire::parse_open_session_reply(answer->body)->session;
    }

    // number: which segment; 0: one more.
    AnswerPtr ask_mount(wire::SessionId session, std::uint64_t capacity, const LinkPtr& link,
                        std::uint64_t number = 0) {
        if (number == 0) number = ++mounted_;
        const std::string name = "segment-" + std::to_string(number);
        wire::SegmentDescription segment;
        segment.capacity_bytes = capacity;
        segment.incarnation = uuid_of(static_cast<std::uint8_t>(100 + number));
        segment.name = name;
        segment.host_id = "host-a";
        const std::string endpoint = "tcp://127.0.0.1:" + std::to_string(number);
        segment.endpoints = {endpoint};
        return ask(Verb::kMount, packed([&](auto& writer) {
                       wire::encode_mount({session, next_sequence(), 0, 0}, {}, std::span(&segment, 1), writer);
                   }),
                   link);
    }
    wire::SegmentId mount(wire::SessionId session, std::uint64_t capacity, const LinkPtr& link) {
        const auto answer = ask_mount(session, capacity, link);
        CHECK_EQUAL(*answer->status, Status::kOk);
        const auto mounts = wire::parse_mount_reply(answer->body);
        CHECK(mounts && mounts->size() == 1);
        CHECK_EQUAL(mounts->at(0).status, Status::kOk);
        return mounts->at(0).segment;
    }

    void unmount(wire::SessionId session, wire::SegmentId segment, const LinkPtr& link) {
        const auto answer = ask(Verb::kUnmount, packed([&](auto& writer) {
                                    wire::encode_segment_ids({session, next_sequence(), 0, 0},
                                                             std::span(&segment, 1), writer);
                                }),
                                link);
        CHECK_EQUAL(*answer->status, Status::kOk);
    }

    Buffer put_start_body(wire::SessionId session, std::string_view key, std::uint64_t size,
                          std::uint64_t sequence, std::uint8_t flags = 0) {
        wire::PutOptions options;
        options.flags = flags;
        const std::uint64_t no_parent = 0;
        return packed([&](auto& writer) {
            wire::encode_put_start({session, sequence, 0, 0}, {}, options, {}, std::span(&key, 1),
                                   std::span(&size, 1), std::span(&no_parent, 1), writer);
        });
    }
    AnswerPtr put_start(wire::SessionId session, std::string_view key, std::uint64_t size,
                        const LinkPtr& link) {
        return ask(Verb::kPutStart, put_start_body(session, key, size, next_sequence()), link);
    }
    AnswerPtr put_end(wire::SessionId session, const Put& put, const LinkPtr& link) {
        const wire::PutEndItem item{put.put_id, 1, 0};
        const wire::ReplicaResult result{put.place.replica, Status::kOk, 0, 0};
        return ask(Verb::kPutEnd, packed([&](auto& writer) {
                       wire::encode_put_end({session, next_sequence(), 0, 0}, std::span(&item, 1),
                                            std::span(&result, 1), writer);
                   }),
                   link);
    }
    AnswerPtr put_revoke(wire::SessionId session, const Put& put, const LinkPtr& link) {
        return ask(Verb::kPutRevoke, packed([&](auto& writer) {
                       wire::encode_put_revoke({session, next_sequence(), 0, 0}, std::span(&put.put_id, 1),
                                               writer);
                   }),
                   link);
    }
    Buffer keys_body(wire::SessionId session, std::string_view key, std::uint64_t sequence) {
        return packed([&](auto& writer) {
            wire::encode_keys_request({session, sequence, wire::kRemoveForce, 0}, {}, std::span(&key, 1),
                                      writer);
        });
    }
    AnswerPtr remove(wire::SessionId session, std::string_view key, const LinkPtr& link) {
        return ask(Verb::kRemove, keys_body(session, key, next_sequence()), link);
    }
    Status exists(wire::SessionId session, std::string_view key, const LinkPtr& link) {
        Buffer body = packed([&](auto& writer) {
            wire::encode_keys_request({session, 0, wire::kWithoutHold, 0}, {}, std::span(&key, 1),
                                      writer);
        });
        const auto answer = ask(Verb::kExists, body, link);
        CHECK_EQUAL(*answer->status, Status::kOk);
        return wire::parse_statuses(answer->body)->at(0);
    }
    void heartbeat(wire::SessionId session, const LinkPtr& link) {
        ask(Verb::kHeartbeat,
            packed([&](auto& writer) { wire::encode_prefix({session, 0, 0, 0}, {}, writer); }), link);
    }
    void confirm(Peer& node, const wire::Retire& command, std::span<const wire::ReplicaId> freed) {
        const Buffer body =
            packed([&](auto& writer) { wire::encode_retire_reply(command.command_id, freed, writer); });
        CHECK(driver.retire_answered(node.link, Status::kOk, body));
        driver.check_invariants();
    }
    void confirm_all(Peer& node) {
        for (const auto& command : node.take_commands()) confirm(node, command, command.replicas);
    }
    std::uint64_t stat(std::string_view name) {
        for (const auto& [key, value] : driver.stats()) {
            if (key == name) return value;
        }
        std::fprintf(stderr, "no stat named %s\n", std::string(name).c_str());
        std::abort();
    }
    std::uint64_t next_sequence() { return ++sequence_; }

    BoundedClock clock;
    std::uint64_t reading_ms_ = 1'000'000;
    StateDriver driver;

  private:
    std::uint64_t sequence_ = 0;
    std::uint64_t mounted_ = 0;
};

inline Put grant_of(const AnswerPtr& answer) {
    CHECK(answer->came());
    CHECK_EQUAL(*answer->status, Status::kOk);
    const auto view = wire::Places<wire::GrantRecord>::parse(answer->body);
    CHECK(view && view->count == 1);
    Put put;
    put.status = view->record(0).status;
    put.put_id = view->record(0).put_id;
    if (view->record(0).replica_count > 0) put.place = view->place(0);
    return put;
}

inline Status only_status(const AnswerPtr& answer) {
    CHECK(answer->came());
    CHECK_EQUAL(*answer->status, Status::kOk);
    const auto statuses = wire::parse_statuses(answer->body);
    CHECK(statuses && statuses->size() == 1);
    return statuses->at(0);
}

// A client, a node with one segment, and one stored value.
struct Cluster {
    explicit Cluster(DriverOptions options = {}, metadata::Options metadata = {},
                     std::uint64_t capacity = 1024 * kKiB)
        : world(options, metadata),
          client(wire::Role::kClient),
          node(wire::Role::kNode),
          session(world.open_session(1, client.link)),
          node_session(world.open_session(2, node.link)),
          segment(world.mount(node_session, capacity, node.link)) {}

    Put store(std::string_view key, std::uint64_t size) {
        const Put put = grant_of(world.put_start(session, key, size, client.link));
        CHECK_EQUAL(put.status, Status::kOk);
        CHECK_EQUAL(only_status(world.put_end(session, put, client.link)), Status::kOk);
        return put;
    }

    World world;
    Peer client;
    Peer node;
    wire::SessionId session;
    wire::SessionId node_session;
    wire::SegmentId segment;
};

}  // namespace master_world
