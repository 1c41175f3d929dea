#include "transfer/server.h"

#include <algorithm>

namespace mooncake::transfer {

using wire::Status;
using wire::Verb;

namespace {

// Descriptors of reads that wait for a peer to take its bytes.
constexpr std::size_t kOutgoingBytesMax = 8u << 20;

std::vector<iovec> pieces_of(std::span<const wire::MemoryRange> ranges) {
    std::vector<iovec> pieces;
    pieces.reserve(ranges.size());
    for (const auto& range : ranges) pieces.push_back({reinterpret_cast<void*>(range.address), range.length});
    return pieces;
}

class EngineConnection final : public net::ConnectionHandler {
  public:
    explicit EngineConnection(std::shared_ptr<Served> served) : served_(std::move(served)) {}

    void on_frame(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) override {
        if (header.is_reply()) return malformed(connection, header, "an answer to no question");
        if (!is_greeted_) return on_hello(connection, header, body);
        switch (header.verb) {
            case Verb::kTransferRead:
                return on_read(connection, header, body);
            case Verb::kTransferWrite:
                return on_write(connection, header, body);
            case Verb::kNotify:
                return on_notify(connection, header, body);
            case Verb::kFirstBuffer:
                return connection.send(answer(header, [this](wire::Writer& writer) {
                    writer.put(served_->registry->first().value_or(wire::MemoryRange{}));
                }));
            case Verb::kPing:
                return connection.send(answer(header, [](wire::Writer&) {}));
            case Verb::kHello:
                return malformed(connection, header, "a second hello");
            default:
                // What payload follows such a frame is not known.
                return malformed(connection, header,
                                 std::string(wire::verb_name(header.verb)) + " is not for a transfer engine");
        }
    }

    void on_garbage(net::Connection&) override {
        served_->counters.malformed_total.fetch_add(1, std::memory_order_relaxed);
    }
    void on_close(net::Connection&, std::string_view) override {}

  private:
    void on_hello(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
        const wire::Greeting greeting = wire::greet(header, body, {wire::Role::kEngine}, served_->software,
                                                    "this is a transfer engine's port: role engine (4) only");
        if (greeting.status == Status::kMalformed) return malformed(connection, header, greeting.why);
        if (!wire::ok(greeting.status)) return refuse(connection, header, greeting.status, greeting.why);
        is_greeted_ = true;
        connection.send(wire::welcome(header, greeting, served_->process, served_->software, 0));
    }

    void on_read(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
        const auto request = wire::parse_transfer(body);
        if (!request) return malformed(connection, header, "the body of a transfer_read does not parse");
        if (*reads_waiting_ >= kReadsWaitingMax) {
            return connection.send(wire::refusal(
                header, Status::kBusy,
                "more than " + std::to_string(kReadsWaitingMax) + " reads wait on this connection"));
        }
        std::shared_ptr<Registry::Hold> hold = claim(connection, header, *request);
        if (!hold) return;
        net::Outgoing frame;
        frame.head = answer(header, [&](wire::Writer& writer) { writer.put(request->payload_bytes); });
        frame.payload = pieces_of(request->ranges);
        ++*reads_waiting_;
        frame.sent = [hold = std::move(hold), served = served_, waiting = reads_waiting_,
                      bytes = request->payload_bytes](bool sent) mutable {
            // Whether it was sent or not, the kernel reads this memory no more.
            hold.reset();
            --*waiting;
            if (sent) served->counters.read_bytes_total.fetch_add(bytes, std::memory_order_relaxed);
        };
        connection.send(std::move(frame));
    }

    void on_write(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
        const auto request = wire::parse_transfer(body);
        if (!request) return malformed(connection, header, "the body of a transfer_write does not parse");
        std::string why;
        std::shared_ptr<Registry::Hold> hold = try_claim(connection, *request, why);
        if (request->payload_bytes == 0) return connection.send(answer(header, [](wire::Writer&) {}));
        std::vector<iovec> targets =
            hold ? pieces_of(request->ranges) : std::vector<iovec>{{nullptr, request->payload_bytes}};
        // Called by the connection, so it lives.
        connection.receive_payload(
            std::move(targets), [this, &connection, header, hold = std::move(hold), why = std::move(why),
                                 bytes = request->payload_bytes](bool received) mutable {
                const bool was_held = hold != nullptr;
                hold.reset();
                if (!received) return;
                if (!was_held) return refuse_memory(connection, header, why);
                served_->counters.written_bytes_total.fetch_add(bytes, std::memory_order_relaxed);
                connection.send(answer(header, [](wire::Writer&) {}));
            });
    }

    void on_notify(net::Connection& connection, const wire::FrameHeader& header, wire::Bytes body) {
        const auto notice = wire::parse_notice(body);
        if (!notice) return malformed(connection, header, "the body of a notify does not parse");
        if (served_->notices.add(*notice)) return connection.send(answer(header, [](wire::Writer&) {}));
        connection.send(wire::refusal(header, Status::kBusy, "too many notices wait here to be taken"));
    }

    std::shared_ptr<Registry::Hold> try_claim(net::Connection& connection,
                                              const wire::TransferRequest& request, std::string& why) {
        return served_->registry->hold(
            request.ranges,
            [weak = connection.weak_from_this()] {
                if (const auto alive = weak.lock()) alive->close("the memory was unregistered");
            },
            why);
    }
    std::shared_ptr<Registry::Hold> claim(net::Connection& connection, const wire::FrameHeader& header,
                                          const wire::TransferRequest& request) {
        std::string why;
        auto hold = try_claim(connection, request, why);
        if (!hold) refuse_memory(connection, header, why);
        return hold;
    }
    void refuse_memory(net::Connection& connection, const wire::FrameHeader& header, std::string_view why) {
        served_->counters.refused_total.fetch_add(1, std::memory_order_relaxed);
        connection.send(wire::refusal(header, Status::kInvalidParams, why));
    }

    template <class Encode>
    static wire::Buffer answer(const wire::FrameHeader& header, Encode encode) {
        wire::Buffer buffer;
        const std::size_t start = wire::begin_frame(buffer, wire::reply_header(header, Status::kOk, 0));
        wire::Writer writer(buffer);
        encode(writer);
        wire::finish_frame(buffer, start);
        return buffer;
    }
    void malformed(net::Connection& connection, const wire::FrameHeader& header, std::string_view why) {
        served_->counters.malformed_total.fetch_add(1, std::memory_order_relaxed);
        refuse(connection, header, Status::kMalformed, why);
    }
    static void refuse(net::Connection& connection, const wire::FrameHeader& header, Status status,
                       std::string_view why) {
        connection.send(wire::refusal(header, status, why));
        connection.close(std::string(why), true);
    }

    const std::shared_ptr<Served> served_;
    bool is_greeted_ = false;
    // Outlives the connection where an answer is still being given up.
    const std::shared_ptr<std::size_t> reads_waiting_ = std::make_shared<std::size_t>(0);
};

}  // namespace

bool Notices::add(const wire::Notice& notice) {
    const std::size_t bytes = notice.name.size() + notice.message.size();
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kNoticesMax || bytes > kNoticesBytesMax - bytes_) return false;
    waiting_.push_back({std::string(notice.name), std::string(notice.message)});
    bytes_ += bytes;
    return true;
}

std::vector<ReceivedNotice> Notices::take() {
    const std::lock_guard lock(mutex_);
    bytes_ = 0;
    return std::exchange(waiting_, {});
}

std::unique_ptr<net::ConnectionHandler> engine_connection(std::shared_ptr<Served> served) {
    return std::make_unique<EngineConnection>(std::move(served));
}

net::ConnectionLimits engine_limits() {
    net::ConnectionLimits limits;
    limits.body_bytes_max = wire::kNoticeBytesMax + 64;
    limits.outgoing_bytes_max = kOutgoingBytesMax;
    return limits;
}

}  // namespace mooncake::transfer
