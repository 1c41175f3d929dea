#include "node/data_views.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "wire/value_header.h"

namespace mooncake::node {

namespace {

using wire::Status;

// References handled under one hold of the directory lock.
constexpr std::size_t kReferencesALock = 1024;

}  // namespace

DataViews::~DataViews() {
    // A node that ends gives nothing back: the client still looks at its memory, and a writer whose
    // connection ends a moment later must not get the range.
    if (shared_->is_stopping) return;
    std::vector<Held> held;
    held.reserve(held_.size());
    for (const auto& [number, one] : held_) held.push_back(one);
    give_back(held);
}

std::string DataViews::refusal(const DataShared& shared, const net::Connection& connection,
                               std::string_view tenant) {
    const auto user = connection.peer_user();
    if (!user) return "only a Unix socket carries it";
    if (*user != ::geteuid()) {
        return "the client is of another user (uid " + std::to_string(*user) + ") than the node (uid " +
               std::to_string(::geteuid()) + ")";
    }
    // Who maps a segment sees all that lies there.
    if (tenant != shared.tenant && !tenant.empty()) {
        return "memory is shared with tenant '" + shared.tenant + "' alone, and this is '" +
               std::string(tenant) + "'";
    }
    return {};
}

void DataViews::map(net::Connection& connection, const wire::FrameHeader& request) {
    wire::MapReply reply;
    net::Outgoing outgoing;
    reply.view_bytes_max = shared_->view_bytes_max;
    for (std::size_t i = 0; i < shared_->holdings->segment_count(); ++i) {
        const MemorySegment& segment = shared_->holdings->segment(i);
        net::FileDescriptor lent = segment.open_to_read();
        reply.segments.push_back({segment.offset(), segment.bytes(), lent ? wire::kMapLent : 0U, 0});
        if (lent) outgoing.descriptors.push_back(std::move(lent));
    }
    const std::size_t start =
        wire::begin_frame(outgoing.head, wire::reply_header(request, Status::kOk, request.epoch));
    wire::Writer writer(outgoing.head);
    wire::encode(reply, writer);
    wire::finish_frame(outgoing.head, start);
    count(shared_->counters.mappings_total);
    connection.send(std::move(outgoing));
}

wire::Opened DataViews::take(Directory& directory, const wire::ReadItem& item, wire::Bytes& header) {
    wire::Opened opened;
    const Directory::View view = directory.open(item.replica, item.digest);
    if (view.reference == nullptr) {
        opened.status = Status::kGone;
    } else if (!shared_->holdings->segment(view.segment).is_lendable()) {
        opened.status = Status::kNotSupported;
    } else if (view.size > shared_->view_bytes_max - held_bytes_ || held_.size() >= wire::kReferencesMax) {
        opened.status = Status::kBusy;
    } else {
        opened = {++last_reference_, view.offset,
                  view.size,         view.checksum,
                  Status::kOk,       0,
                  view.segment,      view.has_checksum ? std::uint8_t{1} : std::uint8_t{0}};
        header = view.header;
        held_.emplace(opened.reference, Held{view.reference, view.size});
        held_bytes_ += view.size;
        return opened;
    }
    if (view.reference != nullptr) directory.close(view.reference);
    return opened;
}

void DataViews::open(net::Connection& connection, const wire::FrameHeader& request, const wire::Read& asked) {
    count(shared_->counters.open_requests_total);
    std::vector<wire::Opened> items(asked.items.size());
    std::vector<wire::Bytes> headers(asked.items.size());
    std::uint64_t epoch = 0;
    for (std::size_t from = 0; from < items.size(); from += kReferencesALock) {
        const std::size_t to = std::min(items.size(), from + kReferencesALock);
        shared_->holdings->with_directory([&](Directory& directory) {
            epoch = directory.epoch();
            for (std::size_t i = from; i < to; ++i) items[i] = take(directory, asked.items[i], headers[i]);
        });
    }
    std::vector<std::string_view> metadata(items.size());
    std::uint64_t values = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (!wire::ok(items[i].status)) continue;
        ++values;
        if ((asked.flags & wire::kReadUserMetadata) == 0) continue;
        const auto header = wire::parse_value_header(headers[i]);
        if (!header) continue;
        metadata[i] = header->user_metadata;
        items[i].metadata_bytes = static_cast<std::uint16_t>(header->user_metadata.size());
    }
    count(shared_->counters.opened_values_total, values);
    shared_->held_references += values;
    wire::Buffer buffer;
    const std::size_t start = wire::begin_frame(buffer, wire::reply_header(request, Status::kOk, epoch));
    wire::Writer writer(buffer);
    wire::encode_open_reply(items, metadata, writer);
    wire::finish_frame(buffer, start);
    connection.send(std::move(buffer));
}

bool DataViews::close(std::span<const std::uint64_t> references) {
    std::vector<Held> held;
    held.reserve(references.size());
    bool is_known = true;
    for (const auto number : references) {
        const auto found = held_.find(number);
        is_known &= found != held_.end();
        if (found == held_.end()) continue;
        held_bytes_ -= found->second.size;
        held.push_back(found->second);
        held_.erase(found);
    }
    give_back(held);
    return is_known;
}

void DataViews::give_back(std::span<const Held> held) {
    shared_->held_references -= held.size();
    while (!held.empty()) {
        const auto some = held.first(std::min(held.size(), kReferencesALock));
        held = held.subspan(some.size());
        shared_->holdings->with_directory([&](Directory& directory) {
            for (const auto& one : some) directory.close(one.reference);
        });
    }
}

}  // namespace mooncake::node
