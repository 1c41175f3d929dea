// A node just below its sockets: data connections that write and read, and a master's commands, well-formed,
// damaged or arbitrary, into the real handlers, control state and directory. After every event the
// directory's invariants hold; a read gives the bytes of the write it names, or nothing; and the kernel,
// which may take an answer long after it was given, still finds them there.
//
// An input is a list of events: u8 what, then what it needs. All of it runs on one event loop, without
// waiting.
#include <array>
#include <map>
#include <optional>

#include "fake_connection.h"
#include "node/control_state.h"
#include "node/data_peer.h"
#include "node/data_server.h"
#include "wire/control.h"
#include "wire/data.h"
#include "wire/digest.h"
#include "wire/shared_memory.h"
#include "wire/tombstones.h"
#include "wire/value_header.h"

namespace {

using namespace mooncake;
using fuzz::Input;
using fuzz::packed;
using fuzz::Script;
using wire::Status;
using wire::Verb;

constexpr std::size_t kPeers = 3;
constexpr std::size_t kEventsMax = 200;
constexpr std::size_t kSegments = 2;
constexpr std::uint64_t kSegmentBytes = 256u << 10;
constexpr std::uint64_t kReadBytesMax = 9u << 20;  // of one request: more than one chunk

enum Event : std::uint8_t {
    kDial,
    kAnswer,
    kRetire,
    kMasterFrame,
    kMasterBytes,
    kMasterGone,
    kCopy,
    kCopyDone,
    kConnect,
    kWrite,
    kPayload,
    kRead,
    kTake,
    kDataFrame,
    kDataBytes,
    kDataGone,
    kEvents
};

using Value = std::shared_ptr<const wire::Buffer>;

struct Peer {
    fuzz::FakePtr connection;
    std::uint64_t request_id = 1;
    bool is_local = false;
    wire::Buffer payload;  // of the write under way, not sent yet
    std::map<std::uint64_t, std::pair<wire::Opened, Value>> views;  // by reference
    struct Write {
        std::vector<wire::WriteItem> items;
        std::vector<Value> values;
    };
    struct Read {
        std::vector<wire::ReadItem> items;
        std::vector<Value> values;  // as they were when it was asked; nullptr: not known
        std::size_t next = 0;       // the item whose pieces come now
        std::uint64_t received = 0;
    };
    std::map<std::uint64_t, Write> writes;
    std::map<std::uint64_t, Read> reads;
    std::deque<wire::Buffer> sent;  // the payload of each frame not taken yet, as it was when it was sent
};

wire::Buffer gathered(const net::Outgoing& frame) {
    wire::Buffer bytes(frame.head);
    for (const iovec& piece : frame.payload) {
        const auto* from = static_cast<const std::uint8_t*>(piece.iov_base);
        bytes.insert(bytes.end(), from, from + piece.iov_len);
    }
    return bytes;
}

class World {
  public:
    World()
        : holdings_(std::make_shared<node::Holdings>(memory())),
          shared_(std::make_shared<node::DataShared>()) {
        shared_->holdings = holdings_;
        shared_->software = "fuzz";
        shared_->peer_bytes_max = 16u << 20;
        shared_->view_bytes_max = kSegments * kSegmentBytes / 8;
        node::ControlOptions options;
        for (std::size_t i = 0; i < kSegments; ++i)
            options.segments.push_back({"n" + std::to_string(i), {"tcp://n:1"}});
        options.retry_min_ms = options.retry_max_ms = options.freed_delay_ms = 0;
        control_ = std::make_shared<node::Control::State>(
            loop_, holdings_, options,
            [this](std::unique_ptr<net::ConnectionHandler> handler,
                   node::Control::State::Connected connected) {
                dialled_ = std::make_shared<fuzz::FakeConnection>(
                    &loop_, [this](const net::Outgoing& frame) { on_sent_to_master(frame); });
                dialled_->set_handler(std::move(handler));
                connected_ = std::move(connected);
            },
            [this](const wire::Uuid& incarnation) {
                shared_->set_incarnation(incarnation);
                values_.clear();
            },
            [this](node::CopyTask task, node::CopyDone done) {
                REQUIRE(task.target != 0 && task.source != 0 && task.size <= wire::kValueBytesMax);
                copies_.push_back(std::move(done));
            });
        holdings_->on_freed([state = std::weak_ptr(control_)] {
            if (const auto alive = state.lock()) alive->ranges_freed();
        });
    }

    void play(Input input) {
        input_.emplace(input);
        control_->start();
        loop_.post([this] { next(); });
        loop_.run();
        control_.reset();
        holdings_->with_directory([](node::Directory& directory) { directory.check_invariants(); });
    }

  private:
    static std::vector<std::unique_ptr<node::MemorySegment>> memory() {
        std::vector<std::unique_ptr<node::MemorySegment>> segments;
        for (std::size_t i = 0; i < kSegments; ++i) {
            segments.push_back(
                std::make_unique<node::MemorySegment>("fuzz", kSegmentBytes, node::MemoryOptions{}));
        }
        return segments;
    }

    // One event a turn of the loop, so that what was posted meanwhile comes between.
    void next() {
        if (input_->empty() || ++events_ > kEventsMax) return end();
        event(*input_);
        if (master_ && master_->is_over()) end_master();
        for (auto& peer : peers_) {
            if (peer.connection && peer.connection->is_over()) disconnect(peer);
        }
        holdings_->with_directory([](node::Directory& directory) { directory.check_invariants(); });
        loop_.post([this] { next(); });
    }

    void end() {
        for (auto& peer : peers_) disconnect(peer);
        holdings_->with_directory([](node::Directory& directory) {
            directory.check_invariants();
            const auto counts = directory.counts();
            REQUIRE(counts.references == 0 && counts.receiving == 0 && counts.draining == 0);
        });
        control_->leave(events_ % 2);
        loop_.post([this] {
            end_master();
            if (dialled_) dialled_->end();
            dialled_.reset();
            connected_ = nullptr;
            copies_.clear();
            loop_.stop();
        });
    }

    void event(Input& input) {
        switch (input.below(kEvents)) {
            case kDial:
                return dial(input.flag());
            case kAnswer:
                return answer(input);
            case kRetire:
                return retire(input);
            case kCopy:
                return copy(input);
            case kCopyDone:
                return copy_done(input.u8());
            case kMasterFrame: {
                const auto verb = static_cast<Verb>(input.u8());
                const std::uint8_t flags = input.u8();
                const std::uint64_t id = (flags & 4) != 0 ? asked_.request_id : input.u8();
                const std::uint64_t epoch = input.u8() == 0xFF ? input.u64() : 1;
                raw_master_ = true;
                return from_master(fuzz::frame(verb, id, input.chunk(), epoch, flags & 3));
            }
            case kMasterBytes:
                raw_master_ = true;
                return from_master(input.chunk());
            case kMasterGone:
                return end_master();
            default:
                return data_event(input);
        }
    }

    // ---- the master

    void dial(bool is_good) {
        if (!connected_) return;
        const auto connected = std::exchange(connected_, nullptr);
        if (!is_good) {
            std::exchange(dialled_, nullptr)->end();
            return connected(nullptr, "refused");
        }
        end_master();
        master_ = std::move(dialled_);
        connected(master_, "");
    }

    void end_master() {
        if (const auto gone = std::exchange(master_, nullptr)) gone->end();
        asked_ = {};
    }

    void from_master(wire::Bytes bytes) {
        const auto alive = master_;
        if (!alive) return;
        alive->feed(bytes);
        while (alive->take_sent()) {
        }
    }

    void on_sent_to_master(const net::Outgoing& sent) {
        const auto header = wire::parse_frame_header(sent.head);
        REQUIRE(header && sent.payload.empty());
        const wire::Bytes body = wire::Bytes(sent.head).subspan(wire::kFrameHeaderBytes);
        REQUIRE(body.size() == header->body_bytes);
        if (!header->is_reply()) {
            asked_ = *header;
            check_question(header->verb, body);
        } else if (header->verb == Verb::kRetire && wire::ok(header->status)) {
            REQUIRE(wire::parse_retire_reply(body).has_value());
            // From now on nobody begins to read them.
            for (const auto replica : retired_) values_.erase(replica);
        } else if (header->verb == Verb::kCopy && wire::ok(header->status)) {
            REQUIRE(wire::parse_copy_reply(body).has_value());
        }
    }

    static void check_question(Verb verb, wire::Bytes body) {
        switch (verb) {
            case Verb::kHello:
                REQUIRE(wire::parse_hello(body).has_value());
                break;
            case Verb::kOpenSession:
                REQUIRE(wire::parse_open_session(body).has_value());
                break;
            case Verb::kMount:
                REQUIRE(wire::parse_mount(body)->segments.size() == kSegments);
                break;
            case Verb::kReport:
                REQUIRE(wire::parse_report(body).has_value());
                break;
            case Verb::kInventory:
                REQUIRE(wire::parse_inventory(body).has_value());
                break;
            case Verb::kHoldings:
                REQUIRE(wire::parse_holdings(body).has_value());
                break;
            case Verb::kTombstones:
                REQUIRE(wire::parse_tombstones_request(body).has_value());
                break;
            case Verb::kUnmount:
            case Verb::kDrain:
                REQUIRE(wire::parse_segment_ids(body).has_value());
                break;
            default:
                REQUIRE(verb == Verb::kCloseSession);
        }
    }

    // What a master would answer, or nearly.
    void answer(Input& input) {
        const std::uint8_t odd = input.u8();
        const std::uint64_t epoch = odd >= 0xF8 ? input.u64() : 1 + odd % 3;
        const std::uint8_t number = input.u8();
        if (!master_ || asked_.request_id == 0) return;
        const wire::FrameHeader asked = std::exchange(asked_, {});
        const wire::Buffer body = packed([&](wire::Writer& writer) {
            switch (asked.verb) {
                case Verb::kHello:
                    return wire::encode(wire::Welcome{}, writer);
                case Verb::kOpenSession:
                    return wire::encode(
                        wire::OpenSessionReply{std::uint64_t{1} + number % 3, epoch,
                                               wire::Uuid{static_cast<std::uint8_t>(number / 64)},
                                               number >= 0xF0 ? 0U : 10'000U, 1'000, 1, 1},
                        writer);
                case Verb::kMount: {
                    std::vector<wire::MountAnswer> answers;
                    for (std::uint64_t i = 0; i < kSegments; ++i) answers.push_back({Status::kOk, 100 + i});
                    if (number >= 0xE0) answers.front().status = Status::kStaleEpoch;
                    if (number >= 0xF0) answers.pop_back();
                    return wire::encode_mount_reply(answers, writer);
                }
                case Verb::kReport: {
                    std::vector<wire::SegmentId> unknown;
                    if (number >= 0xF0) unknown.push_back(100);
                    const std::uint64_t comparison = number >= 0xA0 ? number : 0;
                    return wire::encode_report_reply(
                        {wire::make_id(1, number), number % 8U, comparison, 100 + number % 3U, unknown}, writer);
                }
                case Verb::kTombstones: {
                    wire::Tombstones kept;
                    for (std::uint64_t i = 0; i < number % 4U; ++i) kept.replicas.push_back(1 + i);
                    wire::Buffer packed_kept;
                    wire::Writer kept_writer(packed_kept);
                    wire::encode(kept, kept_writer);
                    if (number >= 0xF0) packed_kept.pop_back();
                    return wire::encode_tombstones_reply(number % 8U, packed_kept, writer);
                }
                case Verb::kDrain:
                    return wire::encode(wire::DrainReply{number, number % 3ULL}, writer);
                case Verb::kUnmount:
                    return wire::encode_statuses(std::array{Status::kOk, Status::kOk}, writer);
                default:
                    return;
            }
        });
        static constexpr std::array kStatuses = {Status::kSessionUnknown, Status::kBusy,
                                                 Status::kInvalidParams, Status::kMalformed};
        const Status status = (odd & 0xE0) == 0xC0 ? kStatuses[odd % 4] : Status::kOk;
        from_master(fuzz::frame(asked.verb, asked.request_id, body, epoch, wire::kFlagReply, status));
    }

    void retire(Input& input) {
        const std::uint8_t odd = input.u8();
        retired_.clear();
        for (std::size_t left = input.below(12); left > 0; --left) retired_.push_back(replica_of(input.u8()));
        const auto body = packed([&](auto& writer) { wire::encode_retire(odd, retired_, writer); });
        from_master(fuzz::frame(Verb::kRetire, 7, body, odd >= 0xF0 ? 0 : 1 + odd % 3));
        retired_.clear();
    }

    void copy(Input& input) {
        const std::uint8_t odd = input.u8();
        wire::Copy order;
        order.target = replica_of(input.u8());
        order.segment = 100 + odd % 3;
        order.source = replica_of(input.u8());
        order.put_id = 1 + odd;
        order.timeout_ms = input.u64();
        order.endpoints.assign(odd % 10, "tcp://n:1");
        const auto body = packed([&](auto& writer) { wire::encode(order, writer); });
        const std::uint64_t id = odd == 0xFF ? 1 : order.target;
        from_master(fuzz::frame(Verb::kCopy, id, body, odd >= 0xF0 ? 0 : 1 + odd % 3));
    }

    void copy_done(std::uint8_t how) {
        if (copies_.empty()) return;
        const node::CopyDone done = std::move(copies_.front());
        copies_.pop_front();
        done(how % 2 == 0 ? Status::kOk : Status::kGone);
    }

    // ---- the data port

    static wire::ReplicaId replica_of(std::uint8_t which) {
        return wire::make_id(1 + which / 128, 1 + which % 24);
    }
    static std::string key_of(wire::ReplicaId replica) { return "key-" + std::to_string(replica % 7); }
    static std::uint64_t size_of(std::uint8_t which) { return std::uint64_t{which} * which * 3; }

    void data_event(Input& input) {
        const std::size_t what = kConnect + input.below(kEvents - kConnect);
        Peer& peer = peers_[input.below(kPeers)];
        switch (what) {
            case kConnect:
                return connect(peer, input.u8());
            case kWrite:
                return write(peer, input);
            case kPayload:
                return send_payload(peer, std::size_t{input.u16()} * 4);
            case kRead:
                return read(peer, input);
            case kTake:
                return take(peer, input.u8());
            case kDataFrame: {
                const auto verb = static_cast<Verb>(input.u8());
                const std::uint8_t flags = input.u8() & 3;
                return raw(peer, fuzz::frame(verb, 1'000'000, input.chunk(), 1, flags));
            }
            case kDataBytes:
                return raw(peer, fuzz::copied(input.chunk()));
            default:
                return disconnect(peer);
        }
    }

    void connect(Peer& peer, std::uint8_t process) {
        disconnect(peer);
        peer.connection = std::make_shared<fuzz::FakeConnection>(
            &loop_, [this, &peer](const net::Outgoing& frame) { on_sent(peer, frame); });
        if ((process & 4) != 0) peer.connection->set_local();
        peer.is_local = (process & 4) != 0;
        peer.connection->set_handler(node::data_connection(shared_));
        peer.connection->feed(fuzz::hello(wire::Role::kData, process % 2));
        take(peer, 1);
    }

    void disconnect(Peer& peer) {
        if (peer.connection) peer.connection->end();
        peer = {};
    }

    void send_payload(Peer& peer, std::size_t bytes) {
        if (!peer.connection) return;
        const std::size_t n = std::min(bytes, peer.payload.size());
        const wire::Buffer piece(peer.payload.begin(), peer.payload.begin() + static_cast<std::ptrdiff_t>(n));
        peer.payload.erase(peer.payload.begin(), peer.payload.begin() + static_cast<std::ptrdiff_t>(n));
        peer.connection->feed(piece);
    }

    void raw(Peer& peer, const wire::Buffer& bytes) {
        if (!peer.connection) return;
        send_payload(peer, peer.payload.size());
        raw_data_ = true;
        peer.connection->feed(bytes);
    }

    void write(Peer& peer, Input& input) {
        const std::uint8_t odd = input.u8();
        std::vector<wire::WriteItem> items;
        std::vector<wire::Buffer> headers;
        Peer::Write written;
        wire::Buffer payload;
        for (std::size_t left = input.below(6); left > 0; --left) {
            const std::uint8_t which = input.u8();
            wire::WriteItem item;
            item.replica = replica_of(which);
            item.segment = 100 + (which >> 5 & 1);
            item.length = size_of(input.u8());
            const std::string key = key_of(item.replica);
            wire::ValueHeader header;
            header.put_id = (odd & 0x1F) == 0x1F ? odd / 32 : item.replica;
            header.size = item.length;
            header.tenant = "t";
            header.key = key;
            header.flags = odd;
            header.ttl_ms = odd % 4;
            header.user_metadata = std::string_view("float16").substr(0, odd % 8);
            headers.push_back(packed([&](auto& writer) { wire::encode(header, writer); }));
            item.header_bytes = static_cast<std::uint32_t>(headers.back().size());
            wire::Buffer value(item.length);
            for (std::size_t i = 0; i < value.size(); ++i) {
                value[i] = static_cast<std::uint8_t>(i * 7 + writes_count_ * 13 + which);
            }
            payload.insert(payload.end(), value.begin(), value.end());
            written.values.push_back(std::make_shared<const wire::Buffer>(std::move(value)));
            items.push_back(item);
        }
        if (!peer.connection) return;
        ++writes_count_;
        send_payload(peer, peer.payload.size());
        if (!peer.connection || peer.connection->is_over()) return;
        written.items = items;
        peer.writes[++peer.request_id] = std::move(written);
        peer.payload = std::move(payload);
        const auto body = packed([&](auto& writer) { wire::encode_write(items, headers, writer); });
        peer.connection->feed(fuzz::frame(Verb::kWrite, peer.request_id, body, 1 + odd / 128));
    }

    void read(Peer& peer, Input& input) {
        const std::uint8_t odd = input.u8();
        std::vector<wire::ReadItem> items(input.below(8));
        for (auto& item : items) {
            const std::uint8_t which = input.u8();
            item.replica = replica_of(which);
            item.digest = wire::key_digest(odd >= 0xF0 ? "u" : "t", key_of(item.replica));
            if ((odd & 1) != 0) item.offset = size_of(input.u8());
            if ((odd & 2) != 0) item.length = size_of(input.u8());
            if ((odd & 4) != 0) item.length = ~std::uint64_t{0} - 1;
        }
        if (!peer.connection) return;
        send_payload(peer, peer.payload.size());
        if (!peer.connection || peer.connection->is_over()) return;
        Peer::Read asked;
        // Repeated, so that the answer takes several chunks.
        std::uint64_t bytes = 0;
        const std::size_t count = items.size();
        for (std::size_t round = 0; (odd & 0x38) == 0x38 && round < 60; ++round) {
            for (std::size_t i = 0; i < count; ++i) items.push_back(items[i]);
        }
        for (const auto& item : items) {
            const auto known = values_.find(item.replica);
            asked.values.push_back(known == values_.end() ? nullptr : known->second);
            if (asked.values.back()) bytes += asked.values.back()->size();
            if (bytes > kReadBytesMax) break;
        }
        items.resize(asked.values.size());
        asked.items = items;
        peer.reads[++peer.request_id] = std::move(asked);
        const std::uint32_t flags = odd / 128;
        const auto body = packed([&](auto& writer) { wire::encode_read(flags, items, writer); });
        if (peer.is_local && (odd & 1) == 0) {
            peer.connection->feed(fuzz::frame(Verb::kOpen, peer.request_id, body, 1));
            return look(peer, odd);
        }
        peer.connection->feed(fuzz::frame(Verb::kRead, peer.request_id, body, 1));
    }

    // What is under a reference is as it was, whatever became of its replica; some are given back.
    void look(Peer& peer, std::uint8_t odd) {
        for (const auto& [reference, view] : peer.views) {
            const auto& [opened, value] = view;
            const auto* from = holdings_->at(opened.segment, opened.offset);
            REQUIRE(raw_data_ || std::equal(value->begin(), value->end(), from, from + opened.size));
        }
        if ((odd & 2) == 0 || peer.views.empty() || !peer.connection || peer.connection->is_over()) return;
        const std::array references{peer.views.begin()->first};
        peer.views.erase(references[0]);
        const auto body = packed([&](auto& writer) { wire::encode_close(references, writer); });
        peer.connection->feed(fuzz::frame(Verb::kClose, 0, body));
    }

    void on_opened(Peer& peer, const Peer::Read& asked, wire::Bytes body) {
        const auto reply = wire::parse_open_reply(body);
        REQUIRE(reply && reply->items.size() == asked.items.size());
        for (std::size_t i = 0; i < reply->items.size(); ++i) {
            const auto& opened = reply->items[i];
            if (opened.reference == 0) continue;
            REQUIRE(opened.offset + opened.size <= kSegmentBytes);
            if (asked.values[i]) peer.views[opened.reference] = {opened, asked.values[i]};
        }
    }

    // The kernel takes so many frames: their bytes are still what they were.
    void take(Peer& peer, std::size_t count) {
        for (; count > 0 && peer.connection; --count) {
            const net::Outgoing* oldest = peer.connection->oldest();
            if (oldest == nullptr) return;
            REQUIRE(gathered(*oldest) == peer.sent.front());
            peer.sent.pop_front();
            peer.connection->take_sent();
        }
    }

    void on_sent(Peer& peer, const net::Outgoing& sent) {
        wire::Buffer bytes = gathered(sent);
        const auto header = wire::parse_frame_header(bytes);
        REQUIRE(header && header->is_reply() && bytes.size() >= wire::kFrameHeaderBytes + header->body_bytes);
        const wire::Bytes body = wire::Bytes(bytes).subspan(wire::kFrameHeaderBytes, header->body_bytes);
        const wire::Bytes payload = wire::Bytes(bytes).subspan(wire::kFrameHeaderBytes + header->body_bytes);
        if (!wire::ok(header->status)) {
            REQUIRE(payload.empty());
        } else if (header->verb == Verb::kWrite && peer.writes.contains(header->request_id)) {
            on_written(peer.writes[header->request_id], body);
        } else if (header->verb == Verb::kRead && peer.reads.contains(header->request_id)) {
            on_read(peer.reads[header->request_id], *header, body, payload);
        } else if (header->verb == Verb::kOpen && peer.reads.contains(header->request_id)) {
            on_opened(peer, peer.reads[header->request_id], body);
        }
        peer.sent.push_back(std::move(bytes));
    }

    void on_written(const Peer::Write& write, wire::Bytes body) {
        const auto statuses = wire::parse_statuses(body);
        REQUIRE(statuses && statuses->size() == write.items.size());
        for (std::size_t i = 0; i < statuses->size(); ++i) {
            if (wire::ok((*statuses)[i])) values_[write.items[i].replica] = write.values[i];
        }
    }

    // Pieces in order; every item's bytes are those of its value, or none are there.
    void on_read(Peer::Read& read, const wire::FrameHeader& header, wire::Bytes body, wire::Bytes payload) {
        const auto reply = wire::parse_read_reply(body);
        REQUIRE(reply && reply->payload_bytes == payload.size());
        wire::Reader reader(payload);
        for (const auto& piece : reply->pieces) {
            REQUIRE(piece.index == read.next && piece.index < read.items.size());
            const wire::Bytes bytes = reader.bytes(piece.length);
            const auto verdict = reader.get<wire::Verdict>();
            const auto& item = read.items[piece.index];
            const Value& value = read.values[piece.index];
            if (!value) {
                // Known to nobody but a peer that sent arbitrary bytes.
                REQUIRE(bytes.empty() || raw_data_ || raw_master_);
            } else if (piece.length > 0) {
                REQUIRE(item.offset + read.received + piece.length <= value->size());
                REQUIRE(
                    std::equal(bytes.begin(), bytes.end(),
                               value->begin() + static_cast<std::ptrdiff_t>(item.offset + read.received)) ||
                    raw_data_);
            }
            read.received += piece.length;
            if ((piece.flags & wire::kPieceLast) == 0) continue;
            if (value && wire::ok(verdict.status) && !raw_data_) {
                REQUIRE(read.received == std::min(item.length, value->size() - item.offset));
            }
            if (!wire::ok(verdict.status)) REQUIRE(read.received == 0);
            read.received = 0;
            ++read.next;
        }
        REQUIRE(reader.finished());
        REQUIRE(header.has_more() == (read.next < read.items.size()));
    }

    net::EventLoop loop_;
    std::shared_ptr<node::Holdings> holdings_;
    std::shared_ptr<node::DataShared> shared_;
    std::map<wire::ReplicaId, Value> values_;  // sealed, and not retired
    std::deque<node::CopyDone> copies_;        // ordered and not answered
    std::shared_ptr<node::Control::State> control_;
    std::optional<Input> input_;
    std::size_t events_ = 0;
    std::uint64_t writes_count_ = 0;
    bool raw_data_ = false;
    bool raw_master_ = false;

    fuzz::FakePtr dialled_;  // not answered yet
    node::Control::State::Connected connected_;
    fuzz::FakePtr master_;
    wire::FrameHeader asked_;  // request_id 0: nothing
    std::vector<wire::ReplicaId> retired_;
    std::array<Peer, kPeers> peers_;
};

// ---- seeds

// A mounted node and one connected client.
Script mounted() {
    Script script;
    script.u8(kDial).u8(1);
    for (int i = 0; i < 4; ++i) script.u8(kAnswer).u8(0).u8(0);
    script.u8(kConnect).u8(0).u8(0).u8(0);
    return script;
}

Script& data(Script& script, Event what, std::size_t peer) {
    return script.u8(kConnect).u8(what - kConnect).u8(peer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    World world;
    world.play(Input({data, size}));
    return 0;
}

std::vector<std::pair<std::string, wire::Buffer>> fuzz::seeds() {
    std::vector<std::pair<std::string, wire::Buffer>> made;
    const auto write = [](Script& script, std::size_t peer, std::uint8_t odd,
                          std::initializer_list<std::uint8_t> which_and_size) {
        data(script, kWrite, peer).u8(odd).u8(which_and_size.size() / 2);
        for (const auto byte : which_and_size) script.u8(byte);
    };
    const auto read = [](Script& script, std::size_t peer, std::uint8_t odd,
                         std::initializer_list<std::uint8_t> which) {
        data(script, kRead, peer).u8(odd).u8(which.size());
        for (const auto byte : which) script.u8(byte);
    };
    Script life = mounted();
    write(life, 0, 4, {1, 10, 2, 40, 3, 0, 35, 100});
    data(life, kPayload, 0).u16(60'000);
    read(life, 0, 128, {1, 2, 3, 35, 9});
    data(life, kTake, 0).u8(9);
    life.u8(kRetire).u8(0).u8(2).u8(1).u8(2);
    life.u8(kAnswer).u8(0).u8(9);
    read(life, 0, 0, {1, 3, 35});
    data(life, kTake, 0).u8(9);
    made.emplace_back("life", life);

    Script slow = mounted();  // a reader is slow, its values are retired, others are written meanwhile
    write(slow, 0, 0, {1, 250, 33, 250});
    data(slow, kPayload, 0).u16(65'535);
    data(slow, kPayload, 0).u16(65'535);
    read(slow, 0, 0x38, {1, 33});
    slow.u8(kRetire).u8(0).u8(2).u8(1).u8(33);
    data(slow, kConnect, 1).u8(1);
    write(slow, 1, 0, {5, 100, 6, 100, 37, 100, 38, 100});
    data(slow, kPayload, 1).u16(65'535);
    data(slow, kTake, 0).u8(1);
    data(slow, kTake, 0).u8(200);
    slow.u8(kAnswer).u8(0).u8(40).u8(kAnswer).u8(0).u8(40);
    made.emplace_back("slow_reader", slow);

    Script viewed = mounted();  // values are retired and others written while somebody looks at them
    data(viewed, kConnect, 1).u8(5);
    write(viewed, 1, 0, {1, 100, 2, 60, 33, 90});
    data(viewed, kPayload, 1).u16(65'535);
    read(viewed, 1, 0, {1, 2, 33, 1});
    viewed.u8(kRetire).u8(0).u8(2).u8(1).u8(33);
    write(viewed, 1, 0, {5, 100, 6, 100, 37, 100});
    data(viewed, kPayload, 1).u16(65'535);
    read(viewed, 1, 128, {5, 6});
    for (int i = 0; i < 3; ++i) read(viewed, 1, 2, {1});
    data(viewed, kDataGone, 1);
    made.emplace_back("views", viewed);

    Script cut = mounted();  // a writer stops halfway, another's grant is retired while it writes
    write(cut, 0, 0, {1, 100, 2, 100});
    data(cut, kPayload, 0).u16(100);
    cut.u8(kRetire).u8(0).u8(1).u8(1);
    data(cut, kConnect, 1).u8(1);
    write(cut, 1, 0, {1, 100, 4, 200});
    data(cut, kPayload, 1).u16(65'535);
    data(cut, kDataGone, 0);
    cut.u8(kAnswer).u8(0).u8(3);
    made.emplace_back("cut_writer", cut);

    Script again = mounted();  // another master: the inventory
    write(again, 0, 4, {1, 10, 2, 40});
    data(again, kPayload, 0).u16(60'000);
    again.u8(kMasterGone).u8(kDial).u8(1).u8(kAnswer).u8(0).u8(0).u8(kAnswer).u8(1).u8(64);
    for (int i = 0; i < 6; ++i) again.u8(kAnswer).u8(1).u8(0);
    read(again, 0, 0, {1, 2});
    again.u8(kAnswer).u8(1).u8(0xFF);  // expelled
    again.u8(kDial).u8(1).u8(kAnswer).u8(1).u8(0).u8(kAnswer).u8(1).u8(65).u8(kAnswer).u8(1).u8(0);
    made.emplace_back("another_master", again);

    Script copied = mounted();  // one is ordered twice and answered once, one never
    for (const auto target : std::array<std::uint8_t, 3>{5, 5, 7}) {
        if (target == 7) copied.u8(kCopyDone).u8(0);
        copied.u8(kCopy).u8(1).u8(target).u8(6);
        for (int i = 0; i < 8; ++i) copied.u8(i < 2 ? 9 : 0);  // milliseconds
    }
    made.emplace_back("copies", copied);

    Script raw = mounted();
    raw.u8(kMasterFrame).u8(static_cast<std::size_t>(Verb::kPing)).u8(0).u8(5).u8(0).chunk({});
    raw.u8(kMasterFrame)
        .u8(static_cast<std::size_t>(Verb::kRetire))
        .u8(0)
        .u8(5)
        .u8(0)
        .chunk(
            packed([](auto& writer) { wire::encode_retire(1, std::array<wire::ReplicaId, 1>{5}, writer); }));
    data(raw, kDataFrame, 0).u8(static_cast<std::size_t>(Verb::kRead)).u8(0).chunk(packed([](auto& writer) {
        wire::encode_read(1, std::array{wire::ReadItem{}}, writer);
    }));
    data(raw, kDataFrame, 0).u8(static_cast<std::size_t>(Verb::kPing)).u8(0).chunk({});
    data(raw, kDataBytes, 0).chunk(fuzz::frame(Verb::kWrite, 5, wire::Buffer(8, 0)));
    made.emplace_back("raw", raw);
    return made;
}
