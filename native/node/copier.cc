#include "node/copier.h"

#include <pthread.h>

#include <algorithm>

#include "net/endpoint.h"
#include "net/event_loop.h"
#include "net/random.h"
#include "net/signals_blocked.h"
#include "wire/crc32c.h"
#include "wire/data.h"
#include "wire/digest.h"
#include "wire/value_checksum.h"

namespace mooncake::node {

namespace {

using net::IoResult;
using wire::Status;

Status status_of(IoResult result) {
    switch (result) {
        case IoResult::kDone:
            return Status::kOk;
        case IoResult::kDeadline:
        case IoResult::kWouldBlock:
            return Status::kDeadline;
        case IoResult::kMalformed:
            return Status::kMalformed;
        case IoResult::kClosed:
            break;
    }
    return Status::kTransferFail;
}

// One value on its way in: its range, from the grant to the seal. Cancelled when it goes unsealed, which is
// when nothing writes to the range any more.
class Incoming {
  public:
    Incoming(Holdings& holdings, const CopyTask& task) : holdings_(holdings), task_(task) {}
    ~Incoming() {
        if (!is_granted_) return;
        holdings_.with_directory([&](Directory& directory) { directory.cancel(task_.target); });
    }
    Incoming(const Incoming&) = delete;
    Incoming& operator=(const Incoming&) = delete;

    // The source's header came: it must be the value that was ordered.
    Status begin(wire::Bytes header) {
        const auto parsed = wire::parse_value_header(header);
        if (!parsed || parsed->put_id != task_.put_id || parsed->size != task_.size ||
            wire::key_digest(parsed->tenant, parsed->key) != task_.digest) {
            return Status::kTransferFail;
        }
        has_checksum_ = (parsed->flags & wire::kValueHasChecksum) != 0;
        expected_ = parsed->checksum;
        checksum_ = wire::value_checksum_seed(parsed->tenant, parsed->key, parsed->put_id);
        wire::WriteItem item;
        item.replica = task_.target;
        item.segment = task_.segment;
        item.length = task_.size;
        item.header_bytes = static_cast<std::uint32_t>(header.size());
        const Granted granted = holdings_.with_directory(
            [&](Directory& directory) { return directory.begin_write(item, header, task_.epoch); });
        if (!wire::ok(granted.status)) return granted.status;
        is_granted_ = true;
        data_ = holdings_.at(granted.segment, granted.offset);
        return Status::kOk;
    }
    bool is_begun() const { return is_granted_; }
    std::uint64_t left() const { return task_.size - received_; }
    std::uint8_t* next() { return data_ + received_; }
    void received(std::uint64_t length) {
        checksum_ = wire::crc32c(checksum_, next(), length);
        received_ += length;
    }

    Status seal() {
        if (left() > 0) return Status::kTransferFail;
        if (has_checksum_ && checksum_ != expected_) return Status::kChecksumMismatch;
        is_granted_ = false;
        return holdings_.with_directory([&](Directory& directory) { return directory.seal(task_.target); });
    }

  private:
    Holdings& holdings_;
    const CopyTask& task_;
    bool is_granted_ = false;
    bool has_checksum_ = false;
    std::uint32_t expected_ = 0;
    std::uint32_t checksum_ = 0;
    std::uint8_t* data_ = nullptr;
    std::uint64_t received_ = 0;
};

// The answer's frames, piece after piece. kOk: the last piece is there, and its verdict was OK.
Status receive(net::ClientSocket& socket, std::uint64_t request_id, const net::Patience& patience,
               Incoming& incoming) {
    for (;;) {
        wire::FrameHeader header;
        wire::Bytes body;
        const IoResult head = socket.receive_frame(header, body, patience);
        if (head != IoResult::kDone) return status_of(head);
        if (!header.is_reply() || header.verb != wire::Verb::kRead || header.request_id != request_id) {
            return Status::kMalformed;
        }
        if (!wire::ok(header.status)) return header.status;
        const auto reply = wire::parse_read_reply(body, wire::kValueHeaderBytesMax);
        if (!reply || reply->pieces.empty()) return Status::kMalformed;
        for (std::size_t i = 0; i < reply->pieces.size(); ++i) {
            const wire::Piece& piece = reply->pieces[i];
            // GONE, and the like: a piece without header or bytes, and then the verdict.
            Status begun = Status::kOk;
            if (!incoming.is_begun() && piece.metadata_bytes > 0) {
                begun = incoming.begin(wire::as_bytes(reply->metadata[i]));
            }
            if (!wire::ok(begun)) return begun;
            if (piece.length > 0 && (!incoming.is_begun() || piece.length > incoming.left())) {
                return Status::kMalformed;
            }
            wire::Verdict verdict;
            iovec targets[2] = {{piece.length > 0 ? incoming.next() : nullptr, piece.length},
                                {&verdict, sizeof verdict}};
            const std::span<iovec> wanted =
                piece.length > 0 ? std::span<iovec>(targets) : std::span<iovec>(targets).subspan(1);
            const IoResult came = socket.receive_into(wanted, patience);
            if (came != IoResult::kDone) return status_of(came);
            if (piece.length > 0) incoming.received(piece.length);
            if ((piece.flags & wire::kPieceLast) == 0) continue;
            if (header.has_more() || i + 1 != reply->pieces.size()) return Status::kMalformed;
            if (wire::ok(verdict.status) && !incoming.is_begun()) return Status::kMalformed;
            return verdict.status;
        }
        if (!header.has_more()) return Status::kMalformed;
    }
}

}  // namespace

Copier::Copier(std::shared_ptr<Holdings> holdings, CopierOptions options)
    : holdings_(std::move(holdings)), options_(std::move(options)), process_(net::random_uuid()) {}

Copier::~Copier() { stop(); }

void Copier::fetch(CopyTask task, CopyDone done) {
    Status refused = Status::kOk;
    {
        const std::lock_guard lock(mutex_);
        if (is_stopped_) {
            refused = Status::kClosed;
        } else if (jobs_.size() >= options_.tasks_max) {
            refused = Status::kBusy;
        } else {
            jobs_.push_back({std::move(task), std::move(done)});
            if (threads_.size() < options_.threads && threads_.size() < jobs_.size() + 1) {
                const net::SignalsBlocked blocked;
                threads_.emplace_back([this] { run(); });
            }
        }
    }
    if (wire::ok(refused)) return changed_.notify_one();
    done(refused);
}

void Copier::stop() {
    std::vector<std::thread> threads;
    std::deque<Job> left;
    {
        const std::lock_guard lock(mutex_);
        is_stopped_ = true;
        threads.swap(threads_);
        left.swap(jobs_);
    }
    changed_.notify_all();
    for (auto& job : left) job.done(Status::kClosed);
    for (auto& thread : threads) thread.join();
}

bool Copier::is_stopping() {
    const std::lock_guard lock(mutex_);
    return is_stopped_;
}

void Copier::run() {
    pthread_setname_np(pthread_self(), "mc-copy");
    Connections connections;
    for (;;) {
        Job job;
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return is_stopped_ || !jobs_.empty(); });
            if (jobs_.empty()) return;
            job = std::move(jobs_.front());
            jobs_.pop_front();
        }
        const Status status = carry_out(job.task, connections);
        {
            const std::lock_guard lock(mutex_);
            if (wire::ok(status)) {
                ++copied_values_;
                copied_bytes_ += job.task.size;
            } else if (status != Status::kSealed) {
                ++failed_values_;
                checksum_mismatches_ += status == Status::kChecksumMismatch;
            }
        }
        job.done(status);
    }
}

// Each way to the source in turn; what the source itself said is final.
Status Copier::carry_out(const CopyTask& task, Connections& connections) {
    Status status = Status::kUnreachable;
    for (const auto& endpoint : task.endpoints) {
        if (net::monotonic_ms() >= task.deadline_ms) return Status::kDeadline;
        if (is_stopping()) return Status::kClosed;
        status = fetch_from(endpoint, task, connections);
        if (status != Status::kUnreachable) break;
    }
    return status;
}

std::unique_ptr<net::ClientSocket> Copier::take_connection(const std::string& endpoint, const CopyTask& task,
                                                           Connections& connections, Status& status) {
    const auto kept = connections.find(endpoint);
    if (kept != connections.end()) {
        std::unique_ptr<net::ClientSocket> socket = std::move(kept->second);
        connections.erase(kept);
        if (socket->is_idle_healthy()) return socket;
    }
    const auto address = net::parse_endpoint(endpoint);
    if (!address) {
        status = Status::kUnreachable;
        return nullptr;
    }
    wire::Hello hello;
    hello.role = wire::Role::kData;
    hello.process = process_;
    hello.software = options_.software;
    std::string why;
    const std::uint64_t until = std::min(task.deadline_ms, net::monotonic_ms() + options_.connect_timeout_ms);
    auto socket =
        net::ClientSocket::connect(*address, hello, {until, [this] { return is_stopping(); }}, why, status);
    if (!socket) status = Status::kUnreachable;
    return socket;
}

Status Copier::fetch_from(const std::string& endpoint, const CopyTask& task, Connections& connections) {
    Status status = Status::kOk;
    auto socket = take_connection(endpoint, task, connections, status);
    if (!socket) return status;
    const net::Patience patience{task.deadline_ms, [this] { return is_stopping(); }};

    wire::FrameHeader header;
    header.verb = wire::Verb::kRead;
    header.request_id = socket->next_request_id();
    header.epoch = task.epoch;
    wire::Buffer frame;
    const std::size_t start = wire::begin_frame(frame, header);
    wire::Writer writer(frame);
    const wire::ReadItem item{task.source, task.digest, 0, ~std::uint64_t{0}};
    wire::encode_read(wire::kReadHeader, {&item, 1}, writer);
    wire::finish_frame(frame, start);
    iovec piece{frame.data(), frame.size()};
    const IoResult sent = socket->send_all({&piece, 1}, patience);
    if (sent != IoResult::kDone) return status_of(sent);

    Incoming incoming(*holdings_, task);
    status = receive(*socket, header.request_id, patience, incoming);
    const bool is_complete = wire::ok(status) || status == Status::kGone || status == Status::kBusy;
    if (is_complete && connections.size() < options_.connections_max) {
        connections[endpoint] = std::move(socket);
    } else {
        socket.reset();  // nothing may arrive once the range is given back
    }
    return wire::ok(status) ? incoming.seal() : status;
}

std::vector<std::pair<std::string, std::uint64_t>> Copier::stats() const {
    const std::lock_guard lock(mutex_);
    return {
        {"copied_values_total", copied_values_}, {"copied_bytes_total", copied_bytes_},
        {"failed_copies_total", failed_values_}, {"copy_checksum_mismatches_total", checksum_mismatches_},
        {"waiting_copies_count", jobs_.size()},
    };
}

}  // namespace mooncake::node
