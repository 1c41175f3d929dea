#include "client/transfer.h"

#include <poll.h>

#include <algorithm>
#include <cassert>

#include "net/event_loop.h"
#include "wire/crc32c.h"

namespace mooncake::client {

using net::IoResult;

Transfer::~Transfer() { close(); }

void Transfer::close() {
    dial_.reset();
    socket_.reset();
    if (has_slot_) pool_->drop(bytes_);
    has_slot_ = false;
    state = State::kOver;
}

void Transfer::give_back() {
    has_slot_ = false;
    state = State::kOver;
    if (socket_->link() != nullptr) socket_->link()->end_exchange();
    pool_->give_back(std::move(socket_), bytes_);
}

short Transfer::events() const {
    if (dial_) return dial_->events();
    return state == State::kSending ? POLLOUT : POLLIN;
}

void Transfer::begin_dial(std::unique_ptr<net::ClientDial> dial) {
    dial_ = std::move(dial);
    has_slot_ = true;
    state = State::kDialling;
    progress_ms = net::monotonic_ms();
}

void Transfer::begin(std::unique_ptr<net::ClientSocket> connection, wire::Buffer& frame) {
    dial_.reset();
    socket_ = std::move(connection);
    has_slot_ = true;
    request_id_ = socket_->next_request_id();
    if (socket_->link() != nullptr) socket_->link()->begin_exchange();
    if (replace_frame(replaced_)) return send_next(replaced_, wire::Verb::kOpen);
    wire::Reader reader(frame);
    wire::Writer(frame).patch(offsetof(wire::FrameHeader, request_id), request_id_);
    send_next(frame, reader.get<wire::FrameHeader>().verb);
}

void Transfer::send_next(wire::Buffer& frame, wire::Verb answered_as) {
    verb_ = answered_as;
    pieces_.clear();
    pieces_.push_back({frame.data(), frame.size()});
    add_payload(pieces_);
    unsent_ = pieces_;
    state = State::kSending;
    progress_ms = net::monotonic_ms();
}

bool Transfer::answers_us(const wire::FrameHeader& header) const {
    return header.is_reply() && header.request_id == request_id_ && header.verb == verb_;
}

IoResult Transfer::advance(std::uint64_t wait_until_ms) {
    if (state == State::kSending) {
        progress_ms = net::monotonic_ms();
        const auto sent = socket_->try_send(unsent_);
        if (sent != IoResult::kDone) return sent;
        state = State::kReceiving;
        return this->sent();  // an answer is not here yet: poll before the next call
    }
    // Without a wait this is called because bytes are there; a wait that ended without a frame proves none.
    if (wait_until_ms == 0) progress_ms = net::monotonic_ms();
    return receive(wait_until_ms);
}

IoResult Transfer::receive_frame(wire::FrameHeader& header, wire::Bytes& frame_body,
                                 std::uint64_t wait_until_ms) {
    if (wait_until_ms == 0) return socket_->try_receive_frame(header, frame_body);
    const auto result = socket_->receive_frame(header, frame_body, wait_until_ms);
    return result == IoResult::kDeadline ? IoResult::kWouldBlock : result;
}

IoResult Transfer::receive(std::uint64_t wait_until_ms) {
    const auto result = receive_frame(reply, body, wait_until_ms);
    if (result != IoResult::kDone) return result;
    return answers_us(reply) && !reply.has_more() ? IoResult::kDone : IoResult::kMalformed;
}

void WriteTransfer::add_payload(std::vector<iovec>& pieces) {
    for (const auto index : write_.index) {
        const auto& value = values_[index];
        for (std::size_t i = 0; i < value.piece_count; ++i) {
            if (value.pieces[i].iov_len > 0) pieces.push_back(value.pieces[i]);
        }
    }
}

// ---- reading

bool ReadTransfer::replace_frame(wire::Buffer& frames) {
    mapped_.reset();
    if (!socket().memory() || (views_ == nullptr && !MappedRead::suits(read_))) return false;
    mapped_ = std::make_unique<MappedRead>(read_, targets_, socket().memory());
    for (std::size_t i = 0; i < read_.parts.size(); ++i) {
        mapped_->answers()[i].checksum = read_.parts[i].checksum_seed;
    }
    if (views_ != nullptr) {
        const auto& link = socket().share_link();
        if (!link) return mapped_.reset(), false;
        mapped_->look(*views_, link);
    }
    is_opening_ = mapped_->pack_next(request_id(), frames);
    return is_opening_;
}

IoResult ReadTransfer::sent() { return is_over_ ? IoResult::kDone : IoResult::kWouldBlock; }

// kWouldBlock: something is to be sent.
IoResult ReadTransfer::on_opened(const wire::FrameHeader& header, wire::Bytes opened) {
    if (!answers_us(header)) return IoResult::kMalformed;
    if (!wire::ok(header.status)) {
        for (auto& answer : mapped_->answers()) {
            if (answer.verdict.status == wire::Status::kTransferFail) answer.verdict.status = header.status;
        }
        return IoResult::kDone;
    }
    if (!mapped_->take(opened)) return IoResult::kMalformed;
    is_opening_ = mapped_->pack_next(request_id(), frames_);
    is_over_ = !is_opening_ && mapped_->left().empty();
    if (!is_opening_ && !is_over_) ask_for_bytes();
    send_next(frames_, is_opening_ ? wire::Verb::kOpen : wire::Verb::kRead);
    return advance();
}

// After what is given back: the parts that are left, as any node is asked for them.
void ReadTransfer::ask_for_bytes() {
    std::vector<wire::ReadItem> items;
    for (const auto part : mapped_->left()) {
        items.push_back(mapped_->items()[part]);
        parts_left_.push_back(read_.parts[part]);
    }
    assembly_ = ReadAssembly(parts_left_);
    for (std::size_t i = 0; i < parts_left_.size(); ++i) {
        assembly_.answers()[i].checksum = parts_left_[i].checksum_seed;
    }
    wire::FrameHeader header;
    header.verb = wire::Verb::kRead;
    header.request_id = request_id();
    const auto start = wire::begin_frame(frames_, header);
    wire::Writer writer(frames_);
    wire::encode_read(mapped_->flags(), items, writer);
    wire::finish_frame(frames_, start);
}

std::vector<PartAnswer>& ReadTransfer::answers() {
    if (!mapped_) return assembly_.answers();
    for (std::size_t i = 0; i < parts_left_.size(); ++i) {
        mapped_->answers()[mapped_->left()[i]] = std::move(assembly_.answers()[i]);
    }
    parts_left_.clear();
    return mapped_->answers();
}

IoResult ReadTransfer::receive(std::uint64_t wait_until_ms) {
    while (true) {
        if (in_payload_) {
            const auto result = socket().try_receive_into(unreceived_, received_);
            if (result != IoResult::kDone) return result;
            in_payload_ = false;
            assembly_.settle(verdicts_);
            if (!has_more_) return IoResult::kDone;
        }
        wire::FrameHeader header;
        wire::Bytes head;
        const auto result = receive_frame(header, head, wait_until_ms);
        wait_until_ms = 0;
        if (result != IoResult::kDone) return result;
        if (is_opening_) return on_opened(header, head);
        const auto begun = on_head(header, head);
        if (begun != IoResult::kWouldBlock) return begun;
    }
}

// kWouldBlock: its payload follows.
IoResult ReadTransfer::on_head(const wire::FrameHeader& header, wire::Bytes head) {
    if (!answers_us(header)) return IoResult::kMalformed;
    if (!wire::ok(header.status)) {
        assembly_.refuse(header.status);
        return IoResult::kDone;
    }
    const auto answer = wire::parse_read_reply(head);
    if (!answer || !assembly_.accept(*answer, header.has_more())) return IoResult::kMalformed;
    has_more_ = header.has_more();
    const auto ranges = assembly_.ranges();
    verdicts_.assign(ranges.size(), {});
    ranges_.clear();
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        const auto& part = parts()[ranges[i].part];
        assert(part.offset + ranges[i].offset + ranges[i].length <= targets_[part.index].capacity);
        if (ranges[i].length > 0) {
            ranges_.push_back({target(part) + part.offset + ranges[i].offset, ranges[i].length});
        } else if (views_ != nullptr) {
            target(part);  // of an empty value, too
        }
        ranges_.push_back({&verdicts_[i], sizeof(wire::Verdict)});
    }
    unreceived_ = ranges_;
    range_ = 0;
    range_bytes_ = 0;
    in_payload_ = true;
    return IoResult::kWouldBlock;
}

// Checksums what came, range by range, each followed by its verdict.
void ReadTransfer::on_received(std::size_t bytes) {
    const auto ranges = assembly_.ranges();
    while (bytes > 0) {
        const auto& range = ranges[range_];
        const std::uint64_t of_range =
            std::min<std::uint64_t>(bytes, range.length - std::min(range.length, range_bytes_));
        if (of_range > 0) {
            const auto& part = parts()[range.part];
            const std::uint8_t* from = target(part) + part.offset + range.offset + range_bytes_;
            auto& checksum = assembly_.answers()[range.part].checksum;
            checksum = wire::crc32c(checksum, from, of_range);
        }
        const std::uint64_t end = range.length + sizeof(wire::Verdict);
        const std::uint64_t taken = std::min<std::uint64_t>(bytes, end - range_bytes_);
        bytes -= taken;
        range_bytes_ += taken;
        if (range_bytes_ < end) continue;
        ++range_;
        range_bytes_ = 0;
    }
}

}  // namespace mooncake::client
