#include "transfer/exchange.h"

#include <poll.h>

#include <cstddef>

namespace mooncake::transfer {

using net::IoResult;
using wire::Status;
using wire::Verb;

namespace {

wire::Buffer frame_of(Verb verb, const auto& encode) {
    wire::FrameHeader header;
    header.verb = verb;
    wire::Buffer frame;
    const std::size_t start = wire::begin_frame(frame, header);
    wire::Writer writer(frame);
    encode(writer);
    wire::finish_frame(frame, start);
    return frame;
}

void append(std::vector<iovec>& pieces, const std::vector<wire::MemoryRange>& ranges) {
    pieces.reserve(pieces.size() + ranges.size());
    for (const auto& range : ranges) pieces.push_back({reinterpret_cast<void*>(range.address), range.length});
}

}  // namespace

Exchange::Exchange(Verb verb, Portion portion)
    : verb_(verb), portion_(std::move(portion)), frame_(frame_of(verb, [this](wire::Writer& writer) {
          wire::encode_transfer(portion_.remote, writer);
      })) {}

Exchange::Exchange(Verb verb, wire::Bytes body)
    : verb_(verb), frame_(frame_of(verb, [body](wire::Writer& writer) { writer.bytes(body); })) {}

void Exchange::begin(std::unique_ptr<net::ClientSocket> socket) {
    socket_ = std::move(socket);
    request_id_ = socket_->next_request_id();
    wire::Writer(frame_).patch(offsetof(wire::FrameHeader, request_id), request_id_);
    pieces_.clear();
    pieces_.push_back({frame_.data(), frame_.size()});
    if (!is_read()) append(pieces_, portion_.local);
    left_ = pieces_;
    state_ = State::kSending;
}

short Exchange::events() const { return state_ == State::kSending ? POLLOUT : POLLIN; }

IoResult Exchange::advance() {
    if (state_ == State::kSending) {
        const IoResult sent = socket_->try_send(left_);
        if (sent != IoResult::kDone) return sent;
        state_ = State::kReceiving;
        return IoResult::kWouldBlock;  // the answer is not here yet: poll before the next call
    }
    if (state_ == State::kReceiving) {
        wire::FrameHeader header;
        wire::Bytes body;
        const IoResult received = socket_->try_receive_frame(header, body);
        if (received != IoResult::kDone) return received;
        const IoResult taken = on_answer(header, body);
        if (state_ != State::kPayload) return taken;
    }
    return socket_->try_receive_into(left_);
}

IoResult Exchange::run(const net::Patience& patience) {
    const IoResult sent = socket_->send_all(left_, patience);
    if (sent != IoResult::kDone) return sent;
    state_ = State::kReceiving;
    wire::FrameHeader header;
    wire::Bytes body;
    const IoResult received = socket_->receive_frame(header, body, patience);
    if (received != IoResult::kDone) return received;
    const IoResult taken = on_answer(header, body);
    return state_ == State::kPayload ? socket_->receive_into(left_, patience) : taken;
}

// kDone: it is whole, unless its payload follows now (kPayload).
IoResult Exchange::on_answer(const wire::FrameHeader& header, wire::Bytes body) {
    if (!header.is_reply() || header.has_more() || header.request_id != request_id_ || header.verb != verb_) {
        return IoResult::kMalformed;
    }
    status_ = header.status;
    wire::Reader reader(body);
    if (!wire::ok(status_)) {
        why_ = reader.text16(wire::kHelloBytesMax);
        return IoResult::kDone;
    }
    if (!is_read()) {
        body_.assign(body.begin(), body.end());
        return IoResult::kDone;
    }
    if (reader.get<std::uint64_t>() != portion_.bytes || !reader.finished()) return IoResult::kMalformed;
    pieces_.clear();
    append(pieces_, portion_.local);
    left_ = pieces_;
    state_ = State::kPayload;
    return IoResult::kDone;
}

}  // namespace mooncake::transfer
