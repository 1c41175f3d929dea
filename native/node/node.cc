#include "node/node.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "net/local_socket.h"
#include "net/random.h"

namespace mooncake::node {

namespace {

constexpr std::chrono::milliseconds kLookPeriod{2};

net::Endpoint checked_endpoint(const std::string& text, const char* setting) {
    const auto endpoint = net::parse_endpoint(text);
    if (!endpoint || endpoint->port == 0) {
        throw std::invalid_argument(std::string(setting) + " '" + text + "' is not host:port");
    }
    return *endpoint;
}

bool is_wildcard(const std::string& host) { return host.empty() || host == "0.0.0.0" || host == "::"; }

// The address of this machine that a packet to `peer` would leave from; nothing is sent.
std::string address_facing(const net::Endpoint& peer) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(peer.host.c_str(), std::to_string(peer.port).c_str(), &hints, &found) != 0) return {};
    std::string host;
    for (const addrinfo* one = found; one != nullptr && host.empty(); one = one->ai_next) {
        const int fd = ::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        sockaddr_storage own{};
        socklen_t length = sizeof own;
        char text[NI_MAXHOST] = "";
        if (::connect(fd, one->ai_addr, one->ai_addrlen) == 0 &&
            ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
            ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof text, nullptr, 0,
                          NI_NUMERICHOST) == 0) {
            host = text;
        }
        ::close(fd);
    }
    ::freeaddrinfo(found);
    return host;
}

std::string this_boot() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    file >> id;
    return id.empty() ? "unknown" : id;
}

// A socket that no other process can guess, and how clients of this host find it. Empty name: they cannot.
net::LocalEndpoint local_endpoint() {
    constexpr char kDigits[] = "0123456789abcdef";
    net::LocalEndpoint endpoint{net::this_place(), ::geteuid(), {}};
    if (endpoint.place.empty()) return endpoint;
    endpoint.name = "mooncake-";
    for (const std::uint8_t byte : net::random_uuid()) {
        endpoint.name += {kDigits[byte >> 4], kDigits[byte & 15]};
    }
    return endpoint;
}

}  // namespace

Node::Node(NodeOptions options) : options_(std::move(options)), parts_(std::make_unique<Parts>()) {
    if (options_.segments.empty()) throw std::invalid_argument("a node needs at least one segment");
    if (options_.segments.size() > wire::kSegmentsAMountMax) {
        throw std::invalid_argument(std::to_string(options_.segments.size()) +
                                    " segments are more than the " +
                                    std::to_string(wire::kSegmentsAMountMax) + " that one node may mount");
    }
    for (const auto& segment : options_.segments) {
        if (segment.bytes == 0) {
            throw std::invalid_argument("segment '" + segment.name + "': the size must be above 0 bytes");
        }
        if (segment.name.size() > wire::kNameBytesMax) {
            throw std::invalid_argument("segment name of " + std::to_string(segment.name.size()) +
                                        " bytes; at most " + std::to_string(wire::kNameBytesMax));
        }
    }
    if (!options_.lane.empty()) lane_ = checked_endpoint(options_.lane, "lane");
    for (const auto& master : options_.masters) masters_.push_back(checked_endpoint(master, "master"));
    if (!lane_ && masters_.empty()) throw std::invalid_argument("a node needs a master's address or a lane");
}

Node::~Node() { stop(); }

void Node::start() {
    if (parts_->holdings) throw std::logic_error("the node was started before");
    owner_ = ::getpid();
    try {
        start_parts();
    } catch (...) {
        parts_ = std::make_unique<Parts>();
        throw;
    }
}

void Node::start_parts() {
    std::uint64_t total = 0;
    for (const auto& segment : options_.segments) {
        // Of a file in memory, who made it has paid.
        if (segment.file.path.empty()) total += segment.bytes;
    }
    check_memory_limit(total);
    std::vector<std::unique_ptr<MemorySegment>> memory;
    for (const auto& segment : options_.segments) {
        memory.push_back(segment.file.path.empty()
                             ? std::make_unique<MemorySegment>(segment.name, segment.bytes,
                                                               MemoryOptions{options_.hugepages})
                             : std::make_unique<MemorySegment>(segment.file, segment.bytes));
    }
    parts_->holdings = std::make_shared<Holdings>(std::move(memory));

    DataServerOptions serve;
    serve.host = options_.data_host;
    serve.port = options_.data_port;
    serve.threads = options_.data_threads;
    serve.connections_max = options_.connections_max;
    serve.peer_bytes_max = options_.peer_bytes_max;
    serve.software = options_.software;
    serve.limits.payload_stall_ms = options_.stall_timeout_ms;
    serve.limits.send_stall_ms = options_.stall_timeout_ms;
    if (options_.shared_memory) {
        const auto local = local_endpoint();
        serve.local_name = local.name;
        if (!local.name.empty()) parts_->local_endpoint = net::local_text(local);
    }
    parts_->server = std::make_unique<DataServer>(parts_->holdings, serve);
    name_segments();

    ControlOptions control;
    control.masters = masters_;
    control.lane = lane_;
    control.name = options_.name.empty() ? parts_->segment_names.front() : options_.name;
    control.host_id = options_.host_id.empty() ? this_boot() : options_.host_id;
    control.software = options_.software;
    control.connect_timeout_ms = options_.connect_timeout_ms;
    control.request_timeout_ms = options_.request_timeout_ms;
    for (const auto& name : parts_->segment_names) {
        control.segments.push_back({name, {"tcp://" + parts_->data_endpoint}});
        if (!parts_->local_endpoint.empty()) {
            control.segments.back().endpoints.push_back(parts_->local_endpoint);
        }
    }
    parts_->control = std::make_unique<Control>(
        parts_->holdings, control, [server = parts_->server.get()](const wire::Uuid& incarnation) {
            server->set_incarnation(incarnation);
        });

    std::vector<const MemorySegment*> segments;
    for (std::size_t i = 0; i < parts_->holdings->segment_count(); ++i) {
        segments.push_back(&parts_->holdings->segment(i));
    }
    parts_->faulter = std::make_unique<MemoryFaulter>(
        std::move(segments), options_.memory_fault_threads,
        [holdings = parts_->holdings](std::size_t index, std::uint64_t ready) {
            holdings->with_directory(
                [&](Directory& directory) { directory.set_ready(static_cast<SegmentIndex>(index), ready); });
        },
        [parts = parts_.get()](std::string why) {
            const std::lock_guard lock(parts->error_mutex);
            parts->memory_error = std::move(why);
        });
    parts_->control->start();
}

void Node::name_segments() {
    std::string host = options_.advertised_host;
    if (host.empty() && !is_wildcard(options_.data_host)) host = options_.data_host;
    if (host.empty()) host = address_facing(lane_ ? *lane_ : masters_.front());
    if (host.empty()) host = "127.0.0.1";
    parts_->data_endpoint = net::to_text({host, parts_->server->port()});
    for (std::size_t i = 0; i < options_.segments.size(); ++i) {
        std::string name = options_.segments[i].name;
        if (name.empty()) {
            name = parts_->data_endpoint;
            if (i > 0) name += "#" + std::to_string(i + 1);
        }
        parts_->segment_names.push_back(std::move(name));
    }
}

// Nothing new begins any more: until the last reader and the last writer are done.
void Node::wait_unused() {
    const std::uint64_t end_ms = net::monotonic_ms() + options_.stop_timeout_ms;
    const auto is_used = [&] {
        const auto counts =
            parts_->holdings->with_directory([](Directory& directory) { return directory.counts(); });
        // What clients of this host look at stays as it is, however long they do.
        return counts.references > parts_->server->held_references() || counts.receiving > 0;
    };
    while (is_used() && net::monotonic_ms() < end_ms) std::this_thread::sleep_for(kLookPeriod);
}

void Node::stop(std::uint64_t handover_ms) {
    if (owner_ != 0 && owner_ != ::getpid()) {
        // A forked child has neither the threads nor the right: the parent's node lives on. What would join
        // or unmap is left alone until the child ends.
        static_cast<void>(parts_.release());
        parts_ = std::make_unique<Parts>();
        owner_ = ::getpid();
        return;
    }
    if (stopped_) return;
    stopped_ = true;
    if (parts_->control) {
        parts_->control->stop(handover_ms);
        wait_unused();
    }
    if (parts_->faulter) parts_->faulter->stop();
    if (parts_->server) parts_->server->stop();
}

bool Node::wait_mounted(std::uint64_t timeout_ms) {
    return parts_->control && parts_->control->wait_mounted(timeout_ms);
}

NodeStatus Node::status() const {
    NodeStatus status;
    if (!parts_->control) return status;
    status.control = parts_->control->status();
    status.segment_names = parts_->segment_names;
    status.data_endpoint = parts_->data_endpoint;
    status.local_endpoint = parts_->local_endpoint;
    status.fenced = parts_->holdings->is_fenced();
    status.stats = parts_->server->stats();
    for (auto& stat : parts_->control->copier().stats()) status.stats.push_back(std::move(stat));
    parts_->holdings->with_directory([&](Directory& directory) {
        status.counts = directory.counts();
        for (std::size_t i = 0; i < directory.segment_count(); ++i) {
            status.ready_bytes += directory.ready_bytes(static_cast<SegmentIndex>(i));
        }
    });
    const std::lock_guard lock(parts_->error_mutex);
    status.memory_error = parts_->memory_error;
    return status;
}

std::uint16_t Node::data_port() const { return parts_->server ? parts_->server->port() : std::uint16_t{0}; }

}  // namespace mooncake::node
