#include "client/mapped_read.h"

#include <cassert>
#include <cstring>
#include <utility>

#include "wire/crc32c.h"

namespace mooncake::client {

namespace {

wire::Read asked_by(const NodeRead& read) {
    return wire::parse_read(wire::Bytes(read.frame).subspan(wire::kFrameHeaderBytes)).value_or(wire::Read{});
}

}  // namespace

bool MappedRead::suits(const NodeRead& read) {
    return read.bytes >= kMappedBytesMin && (asked_by(read).flags & ~wire::kReadUserMetadata) == 0;
}

MappedRead::MappedRead(const NodeRead& read, std::span<const Target> targets,
                       std::shared_ptr<const net::SharedMemory> memory)
    : read_(read),
      targets_(targets),
      memory_(std::move(memory)),
      asked_(asked_by(read)),
      answers_(read.parts.size()) {}

bool MappedRead::pack_next(std::uint64_t request_id, wire::Buffer& frames) {
    frames.clear();
    wire::Writer writer(frames);
    wire::FrameHeader header;
    header.request_id = request_id;
    if (!to_close_.empty()) {
        header.verb = wire::Verb::kClose;
        const auto start = wire::begin_frame(frames, header);
        wire::encode_close(to_close_, writer);
        wire::finish_frame(frames, start);
        to_close_.clear();
    }
    begin_ = end_;
    std::uint64_t bytes = 0;
    for (; end_ < asked_.items.size(); ++end_) {
        bytes += read_.parts[end_].length;
        if (views_ == nullptr && bytes > kMappedGroupBytes && end_ > begin_) break;
    }
    if (begin_ == end_) return false;
    header.verb = wire::Verb::kOpen;
    const auto start = wire::begin_frame(frames, header);
    wire::encode_read(asked_.flags, std::span(asked_.items).subspan(begin_, end_ - begin_), writer);
    wire::finish_frame(frames, start);
    return true;
}

bool MappedRead::take(wire::Bytes body) {
    const auto reply = wire::parse_open_reply(body);
    if (!reply || reply->items.size() != end_ - begin_) return false;
    for (std::size_t i = 0; i < reply->items.size(); ++i) {
        const auto part = static_cast<std::uint32_t>(begin_ + i);
        const auto& opened = reply->items[i];
        if (opened.reference != 0) to_close_.push_back(opened.reference);
        if (opened.status == wire::Status::kBusy || opened.status == wire::Status::kNotSupported) {
            left_.push_back(part);
        } else if (!wire::ok(opened.status)) {
            answers_[part].verdict.status = opened.status;
        } else if (use(part, opened)) {
            answers_[part].user_metadata = reply->metadata[i];
        } else {
            return false;
        }
    }
    return true;
}

void MappedRead::look(Views& views, std::shared_ptr<net::ViewLink> link) {
    views_ = &views;
    link_ = std::move(link);
}

bool MappedRead::use(std::uint32_t index, const wire::Opened& opened) {
    const auto& part = read_.parts[index];
    const std::uint8_t* value = memory_->at(opened.segment, opened.offset, opened.size);
    if (value == nullptr) return false;
    auto& answer = answers_[index];
    answer.verdict = {wire::Status::kOk, opened.has_checksum, opened.checksum};
    // A value of another size is not this value.
    if (part.offset > opened.size || part.length > opened.size - part.offset) {
        answer.verdict.status = wire::Status::kTransferFail;
    } else if (views_ != nullptr) {
        view(index, opened, value);
    } else {
        copy(index, value);
    }
    return true;
}

void MappedRead::copy(std::uint32_t index, const std::uint8_t* value) {
    const auto& part = read_.parts[index];
    const auto& target = targets_[part.index];
    assert(part.offset + part.length <= target.capacity);
    if (part.length == 0) return;
    if (read_.checksums) {
        answers_[index].checksum = wire::crc32c_copy(part.checksum_seed, target.data + part.offset,
                                                     value + part.offset, part.length);
    } else {
        std::memcpy(target.data + part.offset, value + part.offset, part.length);
    }
}

// The reference stays, as long as the view does.
void MappedRead::view(std::uint32_t index, const wire::Opened& opened, const std::uint8_t* value) {
    const auto& part = read_.parts[index];
    to_close_.pop_back();
    views_->put(part.index, View(link_, opened.reference, value, opened.size));
    auto& answer = answers_[index];
    if (views_->verifies() && read_.checksums) {
        answer.checksum = wire::crc32c(part.checksum_seed, value, opened.size);
    } else {
        answer.verdict.has_checksum = 0;
    }
}

}  // namespace mooncake::client
