#include "node/data_server.h"

#include <algorithm>

#include "node/data_peer.h"
#include "node/data_reads.h"
#include "node/data_views.h"
#include "node/data_writes.h"

namespace mooncake::node {

namespace {

using wire::Status;
using wire::Verb;

// Answers to small reads wait for their reader as copies, and are no longer in flight by peer_bytes_max.
// Large values wait in their ranges and count as descriptors only.
constexpr std::size_t kOutgoingBytesMax = 4u << 20;
// So much of the memory may lie under the references of one connection's views: it cannot be evicted.
constexpr std::uint64_t kViewsShare = 8;

class DataConnection final : public net::ConnectionHandler {
  public:
    explicit DataConnection(std::shared_ptr<DataShared> shared) : shared_(std::move(shared)) {
        count(shared_->counters.connections_total);
    }

    void on_frame(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) override {
        if (header.is_reply()) return malformed(connection, header, "an answer to no question");
        if (!peer_) return on_hello(connection, header, body);
        switch (header.verb) {
            case Verb::kRead:
                return on_read(connection, header, body);
            case Verb::kWrite:
                return on_write(connection, header, body);
            case Verb::kMap:
            case Verb::kOpen:
            case Verb::kClose:
                if (views_) return on_shared_memory(connection, header, body);
                return connection.send(
                    wire::refusal(header, Status::kNotSupported, "only a Unix socket carries it"));
            case Verb::kPing:
                return connection.send(answer(header));
            case Verb::kHello:
                return malformed(connection, header, "a second hello");
            default:
                connection.send(wire::refusal(
                    header, Status::kNotSupported,
                    std::string(wire::verb_name(header.verb)) + " is for a master's lane; this is a node"));
        }
    }

    void on_garbage(net::Connection&) override { count(shared_->counters.malformed_total); }
    void on_close(net::Connection&, std::string_view) override {
        if (reads_) reads_->close();
        views_.reset();
    }
    bool is_looked_through() const override { return views_ && !views_->is_empty() && !shared_->is_stopping; }

  private:
    void on_hello(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
        const wire::Greeting greeting = wire::greet(header, body, {wire::Role::kData}, shared_->software,
                                                    "this is a node's data port: role data (3) only");
        if (greeting.status == Status::kMalformed) return malformed(connection, header, greeting.why);
        if (!wire::ok(greeting.status)) {
            return refuse_hello(connection, header, greeting.status, greeting.why);
        }
        if (connection.peer_user()) {
            const auto why = DataViews::refusal(*shared_, connection, greeting.hello.tenant);
            if (!why.empty()) return refuse_hello(connection, header, Status::kUnauthenticated, why);
            views_ = std::make_unique<DataViews>(shared_);
        }
        peer_ = shared_->peer(greeting.hello.process);
        reads_ = std::make_shared<ReadQueue>(shared_, peer_, connection.weak_from_this());
        connection.send(wire::welcome(header, greeting, shared_->incarnation(), shared_->software, epoch()));
    }

    void on_read(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
        const auto read = wire::parse_read(body);
        if (!read) return malformed(connection, header, "the body of a read does not parse");
        reads_->start(connection, header, *read);
    }

    void on_shared_memory(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
        if (header.verb == Verb::kMap) {
            if (body.empty()) return views_->map(connection, header);
        } else if (header.verb == Verb::kOpen) {
            const auto asked = wire::parse_read(body);
            if (asked && (asked->flags & ~wire::kReadUserMetadata) == 0) {
                return views_->open(connection, header, *asked);
            }
        } else {
            const auto references = wire::parse_close(body);
            if (references && views_->close(*references)) return;
        }
        malformed(connection, header,
                  "the body of " + std::string(wire::verb_name(header.verb)) + " cannot be");
    }

    void on_write(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
        const auto write = wire::parse_write(body);
        if (!write) return malformed(connection, header, "the body of a write does not parse");
        receive_write(shared_, peer_, connection, header, *write);
    }

    wire::Buffer answer(const wire::FrameHeader& header) {
        wire::Buffer buffer;
        wire::begin_frame(buffer, wire::reply_header(header, Status::kOk, epoch()));
        return buffer;
    }
    std::uint64_t epoch() {
        return shared_->holdings->with_directory([](Directory& directory) { return directory.epoch(); });
    }

    void malformed(net::Connection& connection, const wire::FrameHeader& header, std::string_view why) {
        count(shared_->counters.malformed_total);
        connection.send(wire::refusal(header, Status::kMalformed, why));
        connection.close(std::string(why), true);
    }
    void refuse_hello(net::Connection& connection, const wire::FrameHeader& header, Status status,
                      std::string_view why) {
        count(shared_->counters.refused_hellos_total);
        connection.send(wire::refusal(header, status, why));
        connection.close(std::string(why), true);
    }

    std::shared_ptr<DataShared> shared_;
    std::shared_ptr<DataPeer> peer_;  // from a good hello on
    std::shared_ptr<ReadQueue> reads_;
    std::unique_ptr<DataViews> views_;  // over a Unix socket
};

}  // namespace

std::unique_ptr<net::ConnectionHandler> data_connection(std::shared_ptr<DataShared> shared) {
    return std::make_unique<DataConnection>(std::move(shared));
}

DataServer::DataServer(std::shared_ptr<Holdings> holdings, const DataServerOptions& options)
    : shared_(std::make_shared<DataShared>()), loops_("mc-data", std::max<std::size_t>(1, options.threads)) {
    shared_->holdings = std::move(holdings);
    shared_->software = options.software;
    shared_->peer_bytes_max = options.peer_bytes_max;
    net::Server::Options listen;
    listen.host = options.host;
    listen.port = options.port;
    listen.connections_max = options.connections_max;
    listen.limits = options.limits;
    listen.limits.outgoing_bytes_max = std::min(listen.limits.outgoing_bytes_max, kOutgoingBytesMax);
    server_ =
        std::make_unique<net::Server>(loops_, listen, [shared = shared_] { return data_connection(shared); });
    if (options.local_name.empty()) return;
    for (std::size_t i = 0; i < shared_->holdings->segment_count(); ++i) {
        shared_->view_bytes_max += shared_->holdings->segment(i).bytes() / kViewsShare;
    }
    listen.local_name = options.local_name;
    local_server_ =
        std::make_unique<net::Server>(loops_, listen, [shared = shared_] { return data_connection(shared); });
}

DataServer::~DataServer() { stop(); }

void DataServer::stop() {
    shared_->is_stopping = true;
    if (local_server_) local_server_->stop();
    server_->stop();
    loops_.stop();
}

void DataServer::set_incarnation(const wire::Uuid& incarnation) { shared_->set_incarnation(incarnation); }

std::uint16_t DataServer::port() const { return server_->port(); }
std::uint64_t DataServer::held_references() const { return shared_->held_references; }

std::vector<std::pair<std::string, std::uint64_t>> DataServer::stats() const {
    const auto value = [](const std::atomic<std::uint64_t>& counter) {
        return counter.load(std::memory_order_relaxed);
    };
    const DataCounters& counters = shared_->counters;
    return {
        {"data_connections_count",
         server_->connection_count() + (local_server_ ? local_server_->connection_count() : 0)},
        {"local_connections_count", local_server_ ? local_server_->connection_count() : 0},
        {"mappings_total", value(counters.mappings_total)},
        {"open_requests_total", value(counters.open_requests_total)},
        {"opened_values_total", value(counters.opened_values_total)},
        {"held_references_count", shared_->held_references.load()},
        {"data_connections_total", value(counters.connections_total)},
        {"read_requests_total", value(counters.read_requests_total)},
        {"read_values_total", value(counters.read_values_total)},
        {"read_bytes_total", value(counters.read_bytes_total)},
        {"write_requests_total", value(counters.write_requests_total)},
        {"written_values_total", value(counters.written_values_total)},
        {"written_bytes_total", value(counters.written_bytes_total)},
        {"busy_total", value(counters.busy_total)},
        {"malformed_total", value(counters.malformed_total)},
        {"refused_hellos_total", value(counters.refused_hellos_total)},
    };
}

}  // namespace mooncake::node
