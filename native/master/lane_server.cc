#include "master/lane_server.h"

#include <algorithm>
#include <thread>

namespace mooncake::master {

namespace {

using wire::Role;
using wire::Status;
using wire::Verb;

enum class Door : std::uint8_t { kClosed, kClients, kNodes, kBoth };

// Who may ask what on the lane; a switch, so that a new verb does not compile until it is placed.
Door door_of(Verb verb) {
    switch (verb) {
        case Verb::kOpenSession:
        case Verb::kHeartbeat:
        case Verb::kCloseSession:
        case Verb::kSegments:
        case Verb::kStats:
        case Verb::kPing:
        case Verb::kUnmount:
            return Door::kBoth;
        case Verb::kMount:
        case Verb::kDrain:
        case Verb::kReport:
        case Verb::kInventory:
        case Verb::kTombstones:
        case Verb::kHoldings:
            return Door::kNodes;
        case Verb::kExists:
        case Verb::kMatchPrefix:
        case Verb::kLookup:
        case Verb::kPutStart:
        case Verb::kPutEnd:
        case Verb::kPutRevoke:
        case Verb::kRemove:
        case Verb::kTouch:
        case Verb::kRelease:
        case Verb::kWhy:
        case Verb::kList:
        case Verb::kInspect:
        case Verb::kCreateCopyTask:
        case Verb::kCreateMoveTask:
        case Verb::kQueryTask:
            return Door::kClients;
        case Verb::kHello:
        case Verb::kRetire:
        case Verb::kCopy:
        case Verb::kRead:
        case Verb::kWrite:
        case Verb::kMap:
        case Verb::kOpen:
        case Verb::kClose:
        case Verb::kTransferRead:
        case Verb::kTransferWrite:
        case Verb::kNotify:
        case Verb::kFirstBuffer:
            return Door::kClosed;
    }
    return Door::kClosed;
}

bool is_open_to(Role role, Verb verb) {
    const Door door = door_of(verb);
    return door == Door::kBoth || door == (role == Role::kNode ? Door::kNodes : Door::kClients);
}

wire::Buffer reply_frame(const wire::FrameHeader& request, Status status, std::uint64_t epoch,
                         wire::Bytes body) {
    wire::Buffer frame;
    frame.reserve(wire::kFrameHeaderBytes + body.size());
    const std::size_t start = wire::begin_frame(frame, wire::reply_header(request, status, epoch));
    wire::Writer(frame).bytes(body);
    wire::finish_frame(frame, start);
    return frame;
}

std::size_t lane_threads(std::size_t asked) {
    if (asked > 0) return asked;
    return std::max<std::size_t>(1, std::thread::hardware_concurrency() / 2);
}

// One connection. Its loop's thread calls it; answers may be sent from any thread.
class LaneConnection final : public net::ConnectionHandler {
  public:
    LaneConnection(std::shared_ptr<StateDriver> driver, const LaneOptions& options, LaneCounters& counters)
        : driver_(std::move(driver)), options_(options), counters_(counters) {
        counters_.connections_total.fetch_add(1, std::memory_order_relaxed);
    }

    void on_frame(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) override {
        counters_.frames_total.fetch_add(1, std::memory_order_relaxed);
        if (link_ == nullptr) {
            on_hello(connection, header, body);
        } else if (header.is_reply()) {
            on_reply(connection, header, body);
        } else if (header.verb == Verb::kPing) {
            connection.send(reply_frame(header, Status::kOk, driver_->epoch(), {}));
        } else if (!is_open_to(link_->role, header.verb)) {
            counters_.role_refusals_total.fetch_add(1, std::memory_order_relaxed);
            std::string why = std::string(wire::verb_name(header.verb)) + " is not for ";
            why += link_->role == Role::kNode ? "a node's connection" : "a client's connection";
            refuse(connection, header, Status::kIllegalClient, why);
        } else {
            on_request(connection, header, body);
        }
    }

    void on_garbage(net::Connection&) override {
        counters_.malformed_total.fetch_add(1, std::memory_order_relaxed);
    }
    void on_close(net::Connection&, std::string_view) override {
        if (link_ != nullptr) driver_->link_closed(link_);
    }

  private:
    void on_hello(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
        const wire::Greeting greeting =
            wire::greet(header, body, {Role::kClient, Role::kNode}, options_.software,
                        "this is a master's lane: roles client (1) and node (2), not data (3)");
        if (greeting.status == Status::kMalformed) return malformed(connection, header, greeting.why);
        if (!wire::ok(greeting.status)) {
            auto& refusals = greeting.status == Status::kVersionMismatch ? counters_.version_refusals_total
                                                                         : counters_.role_refusals_total;
            refusals.fetch_add(1, std::memory_order_relaxed);
            return refuse_and_close(connection, header, greeting.status, greeting.why);
        }
        const std::weak_ptr<net::Connection> weak = connection.weak_from_this();
        link_ = std::make_shared<Link>(
            greeting.hello.role,
            [weak](wire::Buffer frame) {
                if (const auto alive = weak.lock()) alive->send(std::move(frame));
            },
            [weak](std::string reason) {
                if (const auto alive = weak.lock()) alive->close(std::move(reason));
            });
        connection.send(
            wire::welcome(header, greeting, options_.master, options_.software, driver_->epoch()));
    }

    // The only questions a master asks are retire and copy commands, and only nodes are asked.
    void on_reply(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
        const bool is_retire = header.verb == Verb::kRetire;
        const bool is_expected = link_->role == Role::kNode && (is_retire || header.verb == Verb::kCopy);
        if (is_expected && (is_retire ? driver_->retire_answered(link_, header.status, body)
                                      : driver_->copy_answered(link_, header.status, body))) {
            return;
        }
        counters_.malformed_total.fetch_add(1, std::memory_order_relaxed);
        connection.close(is_expected ? std::string("malformed answer to a ") + wire::verb_name(header.verb)
                                     : "an answer to no question");
    }

    void on_request(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
        const std::size_t bytes = body.size();
        if (link_->requests.load(std::memory_order_relaxed) >= options_.requests_max ||
            link_->request_bytes.load(std::memory_order_relaxed) + bytes > options_.request_bytes_max) {
            counters_.busy_total.fetch_add(1, std::memory_order_relaxed);
            return refuse(connection, header, Status::kBusy,
                          "too many requests of this connection are unanswered (requests_max " +
                              std::to_string(options_.requests_max) + ", request_bytes_max " +
                              std::to_string(options_.request_bytes_max) + ")");
        }
        link_->requests.fetch_add(1, std::memory_order_relaxed);
        link_->request_bytes.fetch_add(bytes, std::memory_order_relaxed);
        driver_->submit(header.verb, body, link_,
                        [target = connection.weak_from_this(), link = link_, header, bytes,
                         driver = driver_.get(), counters = &counters_](Status status, wire::Buffer answer) {
                            link->requests.fetch_sub(1, std::memory_order_relaxed);
                            link->request_bytes.fetch_sub(bytes, std::memory_order_relaxed);
                            const auto alive = target.lock();
                            if (!alive) return;
                            alive->send(reply_frame(header, status, driver->epoch(), answer));
                            if (status != Status::kMalformed) return;
                            counters->malformed_total.fetch_add(1, std::memory_order_relaxed);
                            alive->close("malformed body", true);
                        });
    }

    void malformed(net::Connection& connection, const wire::FrameHeader& header, std::string_view why) {
        counters_.malformed_total.fetch_add(1, std::memory_order_relaxed);
        refuse_and_close(connection, header, Status::kMalformed, why);
    }
    void refuse(net::Connection& connection, const wire::FrameHeader& header, Status status,
                std::string_view why) {
        connection.send(wire::refusal(header, status, why, driver_->epoch()));
    }
    void refuse_and_close(net::Connection& connection, const wire::FrameHeader& header, Status status,
                          std::string_view why) {
        refuse(connection, header, status, why);
        connection.close(std::string(why), true);
    }

    const std::shared_ptr<StateDriver> driver_;
    const LaneOptions& options_;
    LaneCounters& counters_;
    LinkPtr link_;  // from a good hello on
};

}  // namespace

std::unique_ptr<net::ConnectionHandler> lane_connection(std::shared_ptr<StateDriver> driver,
                                                        const LaneOptions& options, LaneCounters& counters) {
    return std::make_unique<LaneConnection>(std::move(driver), options, counters);
}

struct LaneServer::Shared {
    std::shared_ptr<StateDriver> driver;
    LaneOptions options;
    LaneCounters counters;
};

LaneServer::LaneServer(std::shared_ptr<StateDriver> driver, const LaneOptions& options)
    : shared_(std::make_shared<Shared>()), loops_("mc-lane", lane_threads(options.threads)) {
    shared_->driver = std::move(driver);
    shared_->options = options;
    net::Server::Options listen;
    listen.host = options.host;
    listen.port = options.port;
    listen.connections_max = options.connections_max;
    server_ = std::make_unique<net::Server>(loops_, listen, [shared = shared_] {
        return lane_connection(shared->driver, shared->options, shared->counters);
    });
}

LaneServer::~LaneServer() { stop(); }

void LaneServer::stop() {
    server_->stop();
    loops_.stop();
}

std::uint16_t LaneServer::port() const { return server_->port(); }

std::vector<std::pair<std::string, std::uint64_t>> LaneServer::stats() const {
    const auto value = [](const std::atomic<std::uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    const LaneCounters& counters = shared_->counters;
    return {
        {"lane_connections_count", server_->connection_count()},
        {"lane_connections_total", value(counters.connections_total)},
        {"lane_frames_total", value(counters.frames_total)},
        {"lane_malformed_total", value(counters.malformed_total)},
        {"lane_version_refusals_total", value(counters.version_refusals_total)},
        {"lane_role_refusals_total", value(counters.role_refusals_total)},
        {"lane_busy_answers_total", value(counters.busy_total)},
    };
}

}  // namespace mooncake::master
