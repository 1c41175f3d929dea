#include "node/data_writes.h"

#include <algorithm>
#include <vector>

#include "wire/lane.h"

namespace mooncake::node {

namespace {

// Values handled under one hold of the directory lock.
constexpr std::size_t kValuesALock = 256;

// A batch being received. Whatever of it is not sealed is cancelled when this goes, which is when nobody
// writes to the ranges any more.
class PendingWrite {
  public:
    PendingWrite(std::shared_ptr<DataShared> shared, std::shared_ptr<DataPeer> peer,
                 const wire::FrameHeader& request, const wire::Write& write)
        : shared_(std::move(shared)),
          holdings_(shared_->holdings),
          peer_(std::move(peer)),
          request_(request),
          items_(write.items) {
        statuses_.resize(write.items.size(), wire::Status::kBusy);
        targets_.reserve(write.items.size());
    }
    ~PendingWrite() {
        end_all(false);
        if (admitted_bytes_ > 0) peer_->finish(admitted_bytes_);
    }
    PendingWrite(const PendingWrite&) = delete;
    PendingWrite& operator=(const PendingWrite&) = delete;

    std::vector<iovec> take_targets() { return std::move(targets_); }

    // The last byte is there.
    wire::Buffer seal() {
        end_all(true);
        wire::Buffer buffer;
        const std::size_t start =
            wire::begin_frame(buffer, wire::reply_header(request_, wire::Status::kOk, epoch_));
        wire::Writer writer(buffer);
        wire::encode_statuses(statuses_, writer);
        wire::finish_frame(buffer, start);
        return buffer;
    }

    // Before it nothing is held; a failure within leaves to the destructor what was granted.
    void begin(const wire::Write& write) {
        const bool admitted = peer_->admit(write.payload_bytes, shared_->peer_bytes_max);
        if (admitted) {
            admitted_bytes_ = write.payload_bytes;
        } else {
            count(shared_->counters.busy_total);
        }
        for (std::size_t from = 0; from < write.items.size(); from += kValuesALock) {
            const std::size_t to = std::min(write.items.size(), from + kValuesALock);
            holdings_->with_directory([&](Directory& directory) {
                epoch_ = directory.epoch();
                for (std::size_t i = from; i < to; ++i) {
                    Granted granted{wire::Status::kBusy, 0, 0};
                    if (admitted)
                        granted = directory.begin_write(write.items[i], write.headers[i], request_.epoch);
                    statuses_[i] = granted.status;
                    begun_ = i + 1;
                    add_target(write.items[i].length, granted);
                }
            });
        }
    }

  private:
    void add_target(std::uint64_t length, const Granted& granted) {
        if (length == 0) return;
        if (wire::ok(granted.status)) {
            targets_.push_back({holdings_->at(granted.segment, granted.offset), length});
        } else if (!targets_.empty() && targets_.back().iov_base == nullptr) {
            targets_.back().iov_len += length;
        } else {
            targets_.push_back({nullptr, length});
        }
    }

    // Seals or cancels what was granted and is not ended yet.
    void end_all(bool received) {
        std::uint64_t values = 0;
        std::uint64_t bytes = 0;
        while (ended_ < begun_) {
            const std::size_t to = std::min(begun_, ended_ + kValuesALock);
            holdings_->with_directory([&](Directory& directory) {
                for (; ended_ < to; ++ended_) {
                    if (!wire::ok(statuses_[ended_])) continue;
                    if (!received) {
                        directory.cancel(items_[ended_].replica);
                        continue;
                    }
                    statuses_[ended_] = directory.seal(items_[ended_].replica);
                    if (!wire::ok(statuses_[ended_])) continue;
                    ++values;
                    bytes += items_[ended_].length;
                }
            });
        }
        count(shared_->counters.written_values_total, values);
        count(shared_->counters.written_bytes_total, bytes);
    }

    std::shared_ptr<DataShared> shared_;
    std::shared_ptr<Holdings> holdings_;
    std::shared_ptr<DataPeer> peer_;
    wire::FrameHeader request_;
    std::uint64_t epoch_ = 0;
    std::vector<wire::Status> statuses_;
    std::vector<wire::WriteItem> items_;
    std::vector<iovec> targets_;
    std::uint64_t admitted_bytes_ = 0;
    std::size_t begun_ = 0;
    std::size_t ended_ = 0;
};

}  // namespace

void receive_write(const std::shared_ptr<DataShared>& shared, const std::shared_ptr<DataPeer>& peer,
                   net::Connection& connection, const wire::FrameHeader& request, const wire::Write& write) {
    count(shared->counters.write_requests_total);
    auto pending = std::make_shared<PendingWrite>(shared, peer, request, write);
    pending->begin(write);
    if (write.payload_bytes == 0) return connection.send(pending->seal());
    std::vector<iovec> targets = pending->take_targets();
    connection.receive_payload(std::move(targets), [pending, &connection](bool received) {
        // Called by the connection, so it lives. Not received: the destructor of `pending` cancels.
        if (received) connection.send(pending->seal());
    });
}

}  // namespace mooncake::node
