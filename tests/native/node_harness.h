// What the tests of native/node share: a node's memory behind a data server, and a client that speaks to it
// in whole batches.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "net/client_socket.h"
#include "net_harness.h"
#include "node/data_server.h"
#include "wire/data.h"
#include "wire/digest.h"
#include "wire/lane.h"
#include "wire/crc32c.h"
#include "wire/value_checksum.h"
#include "wire/value_header.h"

namespace harness {

inline constexpr wire::SegmentId kSegment = wire::make_id(1, 1000);

inline wire::ReplicaId replica_id(std::uint64_t counter) { return wire::make_id(1, counter); }
inline std::string key_of(wire::ReplicaId replica) { return "key-" + std::to_string(replica); }

inline wire::Buffer header_of(wire::ReplicaId replica, std::uint64_t size, std::string_view metadata = {},
                              std::optional<std::uint32_t> checksum = {}) {
    const std::string key = key_of(replica);
    wire::ValueHeader header;
    header.put_id = replica;
    header.size = size;
    header.checksum = checksum.value_or(static_cast<std::uint32_t>(replica * 3));
    header.flags = wire::kValueHasChecksum;
    header.tenant = "tenant";
    header.key = key;
    header.user_metadata = metadata;
    wire::Buffer buffer;
    wire::Writer writer(buffer);
    wire::encode(header, writer);
    return buffer;
}

inline wire::ReadItem read_item(wire::ReplicaId replica) {
    wire::ReadItem item;
    item.replica = replica;
    item.digest = wire::key_digest("tenant", key_of(replica));
    return item;
}

// Until it holds; a hang becomes a failure.
inline void wait_until(const char* what, const std::function<bool()>& holds) {
    const std::uint64_t end = net::monotonic_ms() + kHangMs;
    while (!holds()) {
        if (net::monotonic_ms() > end) check::fail(__FILE__, __LINE__, std::string("never came: ") + what);
        ::poll(nullptr, 0, 1);
    }
}

struct ServedMemory {
    explicit ServedMemory(std::uint64_t bytes, node::DataServerOptions options = {}) {
        std::vector<std::unique_ptr<node::MemorySegment>> memory;
        memory.push_back(std::make_unique<node::MemorySegment>("test", bytes, node::MemoryOptions{}));
        holdings = std::make_shared<node::Holdings>(std::move(memory));
        holdings->with_directory([&](node::Directory& directory) {
            directory.adopt(1);
            directory.attach(0, kSegment);
        });
        holdings->heard_master(net::boottime_ms(), 3'600'000);
        options.host = "127.0.0.1";
        server = std::make_unique<node::DataServer>(holdings, options);
    }
    node::Directory::Counts counts() {
        return holdings->with_directory([](node::Directory& directory) {
            directory.check_invariants();
            return directory.counts();
        });
    }
    std::uint64_t stat(std::string_view name) {
        for (const auto& [key, value] : server->stats()) {
            if (key == name) return value;
        }
        check::fail(__FILE__, __LINE__, "no stat named " + std::string(name));
    }
    std::vector<wire::ReplicaId> retire(std::vector<wire::ReplicaId> replicas) {
        std::vector<wire::ReplicaId> freed;
        holdings->with_directory([&](node::Directory& directory) { directory.retire(replicas, freed); });
        return freed;
    }
    std::vector<wire::ReplicaId> pending_freed() {
        return holdings->with_directory([](node::Directory& directory) { return directory.pending_freed(); });
    }

    std::shared_ptr<node::Holdings> holdings;
    std::unique_ptr<node::DataServer> server;
};

struct Value {
    wire::Status status = wire::Status::kInternalError;
    wire::Buffer bytes;
    std::string metadata;
    wire::Verdict verdict;
};

class DataClient {
  public:
    explicit DataClient(std::uint16_t port, std::uint8_t process = 1) {
        wire::Hello hello;
        hello.role = wire::Role::kData;
        hello.process[0] = process;
        std::string why;
        wire::Status status{};
        socket_ = net::ClientSocket::connect({"127.0.0.1", port}, hello, deadline(), why, status);
        CHECK_EQUAL(why, "");
    }

    bool has_true_checksums = false;  // else what is written has some

    void ask_write(const std::vector<wire::ReplicaId>& replicas, const std::vector<wire::Buffer>& values,
                   std::string_view metadata = {}, std::uint64_t epoch = 1,
                   wire::SegmentId segment = kSegment) {
        std::vector<wire::WriteItem> items;
        std::vector<wire::Buffer> headers;
        for (std::size_t i = 0; i < replicas.size(); ++i) {
            std::optional<std::uint32_t> checksum;
            if (has_true_checksums) {
                const auto seed = wire::value_checksum_seed("tenant", key_of(replicas[i]), replicas[i]);
                checksum = wire::crc32c(seed, values[i].data(), values[i].size());
            }
            headers.push_back(header_of(replicas[i], values[i].size(), metadata, checksum));
            items.push_back({replicas[i], segment, values[i].size(),
                             static_cast<std::uint32_t>(headers.back().size()), 0});
        }
        wire::Buffer body;
        wire::Writer writer(body);
        wire::encode_write(items, headers, writer);
        wire::Buffer frame = make_frame(wire::Verb::kWrite, socket_->next_request_id(), body);
        wire::FrameHeader header = *wire::parse_frame_header(frame);
        header.epoch = epoch;
        std::memcpy(frame.data(), &header, sizeof header);
        std::vector<iovec> pieces{{frame.data(), frame.size()}};
        for (const auto& value : values) {
            if (!value.empty()) pieces.push_back({const_cast<std::uint8_t*>(value.data()), value.size()});
        }
        CHECK(socket_->send_all(pieces, deadline()) == net::IoResult::kDone);
    }
    std::vector<wire::Status> take_statuses() {
        wire::FrameHeader header;
        wire::Bytes body;
        CHECK(socket_->receive_frame(header, body, deadline()) == net::IoResult::kDone);
        CHECK(wire::ok(header.status));
        const auto statuses = wire::parse_statuses(body);
        CHECK(statuses.has_value());
        return *statuses;
    }
    std::vector<wire::Status> write(const std::vector<wire::ReplicaId>& replicas,
                                    const std::vector<wire::Buffer>& values, std::string_view metadata = {},
                                    std::uint64_t epoch = 1, wire::SegmentId segment = kSegment) {
        ask_write(replicas, values, metadata, epoch, segment);
        return take_statuses();
    }
    wire::Status write_one(wire::ReplicaId replica, const wire::Buffer& value) {
        return write({replica}, {value}).at(0);
    }

    void send(wire::Verb verb, wire::Bytes body) {
        wire::Buffer frame = make_frame(verb, socket_->next_request_id(), body);
        std::vector<iovec> pieces{{frame.data(), frame.size()}};
        CHECK(socket_->send_all(pieces, deadline()) == net::IoResult::kDone);
    }
    void ask_read(const std::vector<wire::ReadItem>& items, std::uint32_t flags = 0) {
        wire::Buffer body;
        wire::Writer writer(body);
        wire::encode_read(flags, items, writer);
        send(wire::Verb::kRead, body);
    }
    // The next frame's header; its body stays in `body`.
    wire::FrameHeader take_frame(wire::Bytes& body) {
        wire::FrameHeader header;
        CHECK(socket_->receive_frame(header, body, deadline()) == net::IoResult::kDone);
        return header;
    }
    // One chunk into `values`; true when it was the answer's last.
    bool take_chunk(const wire::FrameHeader& header, wire::Bytes body, std::vector<Value>& values) {
        CHECK(wire::ok(header.status));
        const auto reply = wire::parse_read_reply(body);
        CHECK(reply.has_value());
        CHECK(reply->payload_bytes <= wire::kChunkBytesMax);
        std::vector<wire::Verdict> verdicts(reply->pieces.size());
        std::vector<iovec> targets;
        for (std::size_t i = 0; i < reply->pieces.size(); ++i) {
            const auto& piece = reply->pieces[i];
            Value& value = values.at(piece.index);
            value.metadata += reply->metadata[i];
            const std::size_t before = value.bytes.size();
            value.bytes.resize(before + piece.length);
            if (piece.length > 0) targets.push_back({value.bytes.data() + before, piece.length});
            targets.push_back({&verdicts[i], sizeof(wire::Verdict)});
        }
        CHECK(socket_->receive_into(targets, deadline()) == net::IoResult::kDone);
        for (std::size_t i = 0; i < reply->pieces.size(); ++i) {
            if ((reply->pieces[i].flags & wire::kPieceLast) == 0) continue;
            Value& value = values.at(reply->pieces[i].index);
            CHECK(value.status == wire::Status::kInternalError);  // one last piece an item
            value.status = verdicts[i].status;
            value.verdict = verdicts[i];
        }
        return !header.has_more();
    }
    std::vector<Value> take_values(std::size_t count) {
        std::vector<Value> values(count);
        wire::Bytes body;
        while (true) {
            const wire::FrameHeader header = take_frame(body);
            if (take_chunk(header, body, values)) return values;
        }
    }
    std::vector<Value> read(const std::vector<wire::ReadItem>& items, std::uint32_t flags = 0) {
        ask_read(items, flags);
        return take_values(items.size());
    }
    wire::Status ping() {
        send(wire::Verb::kPing, {});
        wire::Bytes body;
        return take_frame(body).status;
    }
    net::ClientSocket& socket() { return *socket_; }
    void close() { socket_.reset(); }

    static std::uint64_t deadline() { return net::monotonic_ms() + kHangMs; }

  private:
    std::unique_ptr<net::ClientSocket> socket_;
};

}  // namespace harness
