#include "node/data_reads.h"

#include <algorithm>
#include <utility>

#include "wire/crc32c.h"
#include "wire/value_checksum.h"
#include "wire/value_header.h"

namespace mooncake::node {

namespace {

constexpr std::size_t kChunksInFlight = 2;
// A reply up to this size is copied into one buffer and sent at once: cheaper than an iovec a value.
constexpr std::uint64_t kSmallReplyBytes = 64u << 10;
// Descriptors of reads that wait on one connection; beyond it, BUSY.
constexpr std::size_t kItemsPendingMax = 4 * wire::kBatchKeysMax;
// Items handled under one hold of the directory lock.
constexpr std::size_t kItemsALock = 1024;

}  // namespace

// One read request: its references, and how far its answer has got.
class ReadJob {
  public:
    ReadJob(DataShared& shared, std::shared_ptr<DataPeer> peer, std::shared_ptr<std::size_t> items_pending,
            const wire::FrameHeader& request, const wire::Read& read)
        : holdings_(shared.holdings),
          peer_(std::move(peer)),
          items_pending_(std::move(items_pending)),
          request_(request),
          with_metadata_((read.flags & wire::kReadUserMetadata) != 0),
          with_header_((read.flags & wire::kReadHeader) != 0) {
        items_.reserve(read.items.size());
        open_all(read.items);
        if ((read.flags & wire::kReadVerified) != 0) verify_parts(read.items);
        *items_pending_ += items_.size();
    }
    ~ReadJob() {
        release_until(items_.size());
        *items_pending_ -= items_.size();
        if (admitted_bytes_ > 0) peer_->finish(admitted_bytes_);
    }
    ReadJob(const ReadJob&) = delete;
    ReadJob& operator=(const ReadJob&) = delete;

    bool admit(std::uint64_t max) {
        if (!peer_->admit(value_bytes_, max)) return false;
        admitted_bytes_ = value_bytes_;
        return true;
    }
    void bytes_sent(std::uint64_t bytes) {
        admitted_bytes_ -= bytes;
        peer_->finish(bytes);
    }

    // The whole answer in one buffer.
    wire::Buffer small_reply();

    struct Chunk {
        net::Outgoing frame;
        // The frame's payload points into it.
        std::shared_ptr<std::vector<wire::Verdict>> verdicts = std::make_shared<std::vector<wire::Verdict>>();
        std::size_t items_done = 0;  // items of the job that are complete with it
        std::uint64_t value_bytes = 0;
    };
    Chunk next_chunk();
    bool is_chunked() const { return next_item_ == items_.size(); }

    // Gives the references of the items before `end` back.
    void release_until(std::size_t end);

    std::uint64_t payload_bytes() const { return value_bytes_ + items_.size() * sizeof(wire::Verdict); }
    std::uint64_t value_bytes() const { return value_bytes_; }
    std::size_t item_count() const { return items_.size(); }
    std::uint64_t epoch() const { return epoch_; }

  private:
    struct Item {
        Directory::View view;
        wire::Buffer header;  // where it was asked for
        wire::Status status = wire::Status::kGone;
        std::uint64_t begin = 0;  // the part of the value that was asked for
        std::uint64_t end = 0;
        std::uint64_t position = 0;  // what lies before it is in a chunk already
        std::uint32_t checksum = 0;  // as the verdict tells it
    };

    void open_all(const std::vector<wire::ReadItem>& asked);
    void verify_parts(const std::vector<wire::ReadItem>& asked);
    void refuse(Item& item, wire::Status status);
    static void place_verdicts(Chunk& chunk);
    wire::Verdict verdict(const Item& item) const;
    std::string_view metadata(const Item& item) const;
    wire::Buffer frame(std::span<const wire::Piece> pieces, std::span<const std::string_view> metadata,
                       bool more) const;

    std::shared_ptr<Holdings> holdings_;
    std::shared_ptr<DataPeer> peer_;
    std::shared_ptr<std::size_t> items_pending_;
    wire::FrameHeader request_;
    bool with_metadata_;
    bool with_header_;
    std::uint64_t epoch_ = 0;
    std::vector<Item> items_;
    std::uint64_t value_bytes_ = 0;
    std::uint64_t admitted_bytes_ = 0;
    std::size_t next_item_ = 0;
    std::size_t released_ = 0;
};

void ReadJob::open_all(const std::vector<wire::ReadItem>& asked) {
    for (std::size_t from = 0; from < asked.size(); from += kItemsALock) {
        const std::size_t to = std::min(asked.size(), from + kItemsALock);
        holdings_->with_directory([&](Directory& directory) {
            epoch_ = directory.epoch();
            for (std::size_t i = from; i < to; ++i) {
                Item& item = items_.emplace_back();
                item.view = directory.open(asked[i].replica, asked[i].digest);
                if (!with_header_ || item.view.reference == nullptr) continue;
                wire::Writer writer(item.header);
                directory.write_header(*item.view.reference, writer);
            }
        });
    }
    for (std::size_t i = 0; i < items_.size(); ++i) {
        Item& item = items_[i];
        if (item.view.reference == nullptr) continue;
        if (asked[i].offset > item.view.size) {
            item.status = wire::Status::kInvalidParams;
        } else {
            item.status = wire::Status::kOk;
            item.begin = item.position = asked[i].offset;
            item.end = item.begin + std::min(asked[i].length, item.view.size - item.begin);
            item.checksum = item.view.checksum;
            value_bytes_ += item.end - item.begin;
        }
    }
}

void ReadJob::refuse(Item& item, wire::Status status) {
    value_bytes_ -= item.end - item.begin;
    item.begin = item.end = item.position = 0;
    item.status = status;
}

// Under their references, so that nothing changes between the look and the sending but by a fault.
void ReadJob::verify_parts(const std::vector<wire::ReadItem>& asked) {
    std::uint64_t left = wire::kVerifiedBytesMax;
    wire::ReplicaId looked_at = 0;
    bool is_whole = false;
    for (std::size_t i = 0; i < items_.size(); ++i) {
        Item& item = items_[i];
        if (!wire::ok(item.status) || !item.view.has_checksum) continue;
        const bool is_new = asked[i].replica != looked_at;
        const std::uint64_t length = item.end - item.begin;
        const std::uint64_t cost = length + (is_new ? item.view.size : 0);
        if (cost > left) {
            refuse(item, wire::Status::kValueTooLarge);
            continue;
        }
        left -= cost;
        const std::uint8_t* value = holdings_->at(item.view.segment, item.view.offset);
        if (is_new) {
            const auto header = wire::parse_value_header(item.view.header);
            looked_at = asked[i].replica;
            is_whole =
                header && wire::crc32c(wire::value_checksum_seed(header->tenant, header->key, header->put_id),
                                       value, item.view.size) == item.view.checksum;
        }
        if (is_whole) {
            item.checksum = wire::crc32c(0, value + item.begin, length);
        } else {
            refuse(item, wire::Status::kChecksumMismatch);
        }
    }
}

void ReadJob::release_until(std::size_t end) {
    while (released_ < end) {
        const std::size_t to = std::min(end, released_ + kItemsALock);
        holdings_->with_directory([&](Directory& directory) {
            for (; released_ < to; ++released_) {
                if (Directory::Entry* reference = items_[released_].view.reference)
                    directory.close(reference);
            }
        });
    }
}

wire::Verdict ReadJob::verdict(const Item& item) const {
    wire::Verdict verdict;
    verdict.status = item.status;
    if (!wire::ok(item.status)) return verdict;
    verdict.has_checksum = item.view.has_checksum ? 1 : 0;
    verdict.checksum = item.checksum;
    return verdict;
}

std::string_view ReadJob::metadata(const Item& item) const {
    if (!wire::ok(item.status)) return {};
    if (with_header_) return wire::as_text(item.header);
    if (!with_metadata_) return {};
    const auto header = wire::parse_value_header(item.view.header);
    return header ? header->user_metadata : std::string_view{};
}

wire::Buffer ReadJob::frame(std::span<const wire::Piece> pieces, std::span<const std::string_view> metadata,
                            bool more) const {
    wire::FrameHeader header = wire::reply_header(request_, wire::Status::kOk, epoch_);
    if (more) header.flags |= wire::kFlagMore;
    wire::Buffer buffer;
    const std::size_t start = wire::begin_frame(buffer, header);
    wire::Writer writer(buffer);
    wire::encode_read_reply(pieces, metadata, writer);
    wire::finish_frame(buffer, start);
    return buffer;
}

wire::Buffer ReadJob::small_reply() {
    std::vector<wire::Piece> pieces;
    std::vector<std::string_view> texts;
    pieces.reserve(items_.size());
    texts.reserve(items_.size());
    for (const Item& item : items_) {
        texts.push_back(metadata(item));
        pieces.push_back({static_cast<std::uint32_t>(pieces.size()), wire::kPieceLast,
                          static_cast<std::uint16_t>(texts.back().size()), item.end - item.position});
    }
    wire::Buffer buffer = frame(pieces, texts, false);
    buffer.reserve(buffer.size() + payload_bytes());
    wire::Writer writer(buffer);
    for (const Item& item : items_) {
        if (item.end > item.position) {
            const std::uint8_t* from = holdings_->at(item.view.segment, item.view.offset + item.position);
            writer.bytes({from, item.end - item.position});
        }
        writer.put(verdict(item));
    }
    next_item_ = items_.size();
    return buffer;
}

ReadJob::Chunk ReadJob::next_chunk() {
    Chunk chunk;
    std::vector<wire::Piece> pieces;
    std::vector<std::string_view> texts;
    std::uint64_t payload = 0;
    while (next_item_ < items_.size()) {
        Item& item = items_[next_item_];
        const std::uint64_t room = wire::kChunkBytesMax - payload - sizeof(wire::Verdict);
        const std::uint64_t left = item.end - item.position;
        // A value that fits into a chunk of its own is not cut.
        if (left > room && payload > 0) break;
        const std::uint64_t length = std::min(left, room);
        const bool last = length == left;
        texts.push_back(item.position == item.begin ? metadata(item) : std::string_view{});
        wire::Piece piece;
        piece.index = static_cast<std::uint32_t>(next_item_);
        piece.flags = last ? wire::kPieceLast : 0;
        piece.metadata_bytes = static_cast<std::uint16_t>(texts.back().size());
        piece.length = length;
        pieces.push_back(piece);
        if (length > 0) {
            std::uint8_t* from = holdings_->at(item.view.segment, item.view.offset + item.position);
            chunk.frame.payload.push_back({from, length});
        }
        // Placeholder for the verdict, whose address is known only once all of them are there.
        chunk.frame.payload.push_back({nullptr, sizeof(wire::Verdict)});
        chunk.verdicts->push_back(last ? verdict(item) : wire::Verdict{});
        item.position += length;
        payload += length + sizeof(wire::Verdict);
        chunk.value_bytes += length;
        if (!last || payload + sizeof(wire::Verdict) > wire::kChunkBytesMax) {
            if (last) ++next_item_;
            break;
        }
        ++next_item_;
    }
    place_verdicts(chunk);
    chunk.items_done = next_item_;
    chunk.frame.head = frame(pieces, texts, next_item_ < items_.size());
    return chunk;
}

// Points the placeholders at the verdicts; neighbours become one piece.
void ReadJob::place_verdicts(Chunk& chunk) {
    std::vector<iovec> payload;
    payload.reserve(chunk.frame.payload.size());
    wire::Verdict* verdict = chunk.verdicts->data();
    bool after_verdict = false;
    for (const iovec& piece : chunk.frame.payload) {
        if (piece.iov_base != nullptr) {
            payload.push_back(piece);
        } else if (after_verdict) {
            payload.back().iov_len += sizeof(wire::Verdict);
        } else {
            payload.push_back({verdict, sizeof(wire::Verdict)});
        }
        after_verdict = piece.iov_base == nullptr;
        if (after_verdict) ++verdict;
    }
    chunk.frame.payload = std::move(payload);
}

// ---- the queue

ReadQueue::ReadQueue(std::shared_ptr<DataShared> shared, std::shared_ptr<DataPeer> peer,
                     std::weak_ptr<net::Connection> connection)
    : shared_(std::move(shared)), peer_(std::move(peer)), connection_(std::move(connection)) {}

ReadQueue::~ReadQueue() = default;

void ReadQueue::start(net::Connection& connection, const wire::FrameHeader& request, const wire::Read& read) {
    count(shared_->counters.read_requests_total);
    if (*items_pending_ + read.items.size() > kItemsPendingMax) {
        count(shared_->counters.busy_total);
        return connection.send(wire::refusal(
            request, wire::Status::kBusy,
            "more than " + std::to_string(kItemsPendingMax) + " reads wait on this connection"));
    }
    auto job = std::make_shared<ReadJob>(*shared_, peer_, items_pending_, request, read);
    if (!job->admit(shared_->peer_bytes_max)) {
        count(shared_->counters.busy_total);
        return connection.send(wire::refusal(
            request, wire::Status::kBusy,
            "more than peer_bytes_max (" + std::to_string(shared_->peer_bytes_max) + ") bytes in flight",
            job->epoch()));
    }
    count(shared_->counters.read_values_total, job->item_count());
    count(shared_->counters.read_bytes_total, job->value_bytes());
    // Overtaking a batch that is being sent is fine: answers name their request.
    if (job->payload_bytes() <= kSmallReplyBytes) return connection.send(job->small_reply());
    jobs_.push_back(std::move(job));
    pump();
}

void ReadQueue::close() {
    closed_ = true;
    jobs_.clear();
}

void ReadQueue::pump() {
    const auto connection = connection_.lock();
    while (connection && !closed_ && chunks_in_flight_ < kChunksInFlight && !jobs_.empty()) {
        const auto job = jobs_.front();
        ReadJob::Chunk chunk = job->next_chunk();
        if (job->is_chunked()) jobs_.pop_front();
        ++chunks_in_flight_;
        chunk.frame.sent = [queue = shared_from_this(), job, verdicts = chunk.verdicts,
                            items_done = chunk.items_done, bytes = chunk.value_bytes](bool) {
            // Whether it was sent or not, the kernel reads these ranges no more.
            job->release_until(items_done);
            job->bytes_sent(bytes);
            --queue->chunks_in_flight_;
            queue->pump();
        };
        connection->send(std::move(chunk.frame));
    }
}

}  // namespace mooncake::node
