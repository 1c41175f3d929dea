#include "cluster.h"

#include <algorithm>

#include "door.h"
#include "net/endpoint.h"

namespace simulation {

namespace {

std::string ip(const Host& host) {
    const auto part = [&](unsigned shift) { return std::to_string((host.address >> shift) & 0xFF); };
    return part(24) + "." + part(16) + "." + part(8) + "." + part(0);
}

}  // namespace

namespace {

constexpr Ms kStateLookMs = 50;  // as the daemon looks at what it keeps

}  // namespace

Cluster::Cluster(World& world, Kernel& kernel, const Plan& plan)
    : world_(world), kernel_(kernel), plan_(plan) {
    for (std::size_t i = 0; i < plan.master_addresses; ++i) {
        masters_.emplace_back().host = &world_.add_host("master" + std::to_string(i));
    }
    for (std::size_t i = 0; i < plan.nodes; ++i) {
        nodes_.emplace_back().host = &world_.add_host("node" + std::to_string(i));
    }
    for (std::size_t i = 0; i < plan.clients; ++i) {
        clients_.emplace_back().host = &world_.add_host("client" + std::to_string(i));
    }
}

void Cluster::start() {
    world_.spawn(master_host(), "start", [this] {
        start_master(current_);
        for (std::size_t i = 0; i < nodes_.size(); ++i) start_node(i);
        for (std::size_t i = 0; i < clients_.size(); ++i) start_client(i);
    });
}

// From a fiber of its host.
void Cluster::start_master(std::size_t index) {
    MasterProcess& process = masters_[index];
    for (const MasterProcess& other : masters_) {
        if (other.is_running) noted_epoch_ = std::max(noted_epoch_, other.master->epoch());
    }
    auto options = plan_.master;
    options.lane_host = ip(*process.host);
    options.lane_port = kLanePort;
    options.software = "simulation";
    options.epoch = ++noted_epoch_;
    options.driver.keeps_tombstones = true;
    options.dial_back = true;
    process.master = std::make_unique<mooncake::master::Master>(options);
    process.master->restore_tombstones(kept_tombstones_);
    process.master->start();
    process.is_running = true;
    current_ = index;
    is_taken_over_ = false;
    ++reigns_;
    process.is_over = std::make_shared<bool>(false);
    world_.spawn(*process.host, "state file", [this, &master = *process.master, is_over = process.is_over] {
        keep_tombstones(master, is_over);
    });
    if (!plan_.finds_lane) return;
    world_.spawn(*process.host, "door", [&master = *process.master, is_over = process.is_over] {
        serve_discovery(master, kDoorPort, is_over);
    });
}

// As the daemon does with its state file.
void Cluster::keep_tombstones(mooncake::master::Master& master, const std::shared_ptr<const bool>& is_over) {
    std::uint64_t kept = 0;
    for (;;) {
        world_.sleep(kStateLookMs);
        if (*is_over) return;
        const std::uint64_t generation = master.tombstones_generation();
        // Of two masters only the later one has the file.
        if (generation == kept || master.epoch() < noted_epoch_) continue;
        kept_tombstones_ = master.tombstones();
        master.tombstones_kept(generation);
        kept = generation;
    }
}

bool Cluster::has_old_master() const {
    for (std::size_t i = 0; i < masters_.size(); ++i) {
        if (i != current_ && masters_[i].is_running) return true;
    }
    return false;
}

std::optional<std::size_t> Cluster::free_address() const {
    for (std::size_t i = 0; i < masters_.size(); ++i) {
        if (i != current_ && !masters_[i].is_running && !masters_[i].host->is_down) return i;
    }
    return std::nullopt;
}

// The host is up again at `up_ms`.
void Cluster::end_master(std::size_t index, bool is_told, Ms up_ms) {
    MasterProcess& process = masters_[index];
    noted_epoch_ = std::max(noted_epoch_, process.master->epoch());
    if (has_old_master()) last_old_ms_ = world_.now_ms();
    master_ends(*process.master);
    process.is_running = false;
    process.host->is_down = true;
    process.host->is_silent = !is_told;
    if (process.is_over) *process.is_over = true;
    world_.go_on(*process.host);
    kernel_.sever(*process.host, is_told);
    world_.spawn(*process.host, "crash", [this, up_ms, &process] {
        process.master->stop();
        process.master.reset();
        if (world_.now_ms() < up_ms) world_.wait(up_ms);
        process.host->is_down = false;
        kernel_.revive(*process.host);
    });
}

bool Cluster::crash_master(bool is_told, Ms down_ms, bool elsewhere) {
    const auto other = elsewhere ? free_address() : std::nullopt;
    const Ms up_ms = world_.now_ms() + down_ms;
    reign_ends();
    end_master(current_, is_told, up_ms);
    const std::size_t next = other.value_or(current_);
    // Elsewhere it need not wait for the machine of the one that died.
    const Ms start_ms = other ? world_.now_ms() + world_.random().below(down_ms + 1) : up_ms;
    world_.spawn(*masters_[next].host, "start", [this, next, start_ms] {
        if (world_.now_ms() < start_ms) world_.wait(start_ms);
        while (masters_[next].host->is_down) world_.sleep(1);
        start_master(next);
    });
    return other.has_value();
}

bool Cluster::take_over(Ms delay_ms, Ms until_ms, Ms awake_ms) {
    const auto next = free_address();
    if (!next || is_taken_over_) return false;
    const std::size_t old = current_;
    is_taken_over_ = true;
    ++takeovers_;
    world_.stop(*masters_[old].host, until_ms);
    world_.spawn(*masters_[*next].host, "start", [this, next = *next, delay_ms] {
        world_.sleep(delay_ms);
        reign_ends();
        start_master(next);
    });
    world_.at(until_ms + awake_ms, [this, old, life = masters_[old].master.get()] {
        if (old != current_ && masters_[old].master.get() == life && masters_[old].is_running) {
            end_master(old, world_.random().chance(5'000), world_.now_ms() + 100);
        }
    });
    return true;
}

void Cluster::kill_old_masters() {
    for (std::size_t i = 0; i < masters_.size(); ++i) {
        if (i != current_ && masters_[i].is_running) end_master(i, true, world_.now_ms() + 1);
    }
}

std::vector<std::string> Cluster::doors() const {
    std::vector<std::string> doors;
    if (!plan_.finds_lane) return doors;
    for (const auto& process : masters_) doors.push_back(ip(*process.host) + ":" + std::to_string(kDoorPort));
    return doors;
}

std::unique_ptr<mooncake::node::Node> Cluster::make_node(std::size_t index) {
    const Host& host = *nodes_[index].host;
    mooncake::node::NodeOptions options;
    for (std::size_t i = 0; i < plan_.segments_a_node; ++i) {
        options.segments.push_back(
            {host.name + "#" + std::to_string(i), plan_.capacities[index] / plan_.segments_a_node});
    }
    options.masters = doors();
    if (options.masters.empty()) options.lane = ip(*masters_[0].host) + ":" + std::to_string(kLanePort);
    options.data_host = ip(host);
    options.shared_memory = false;  // a Unix socket would be the real machine's
    options.data_port = kDataPort;
    // The first client shares the first node's host, as far as placement knows.
    options.host_id = "host" + std::to_string(index);
    options.data_threads = 1;
    options.memory_fault_threads = 1;
    options.stall_timeout_ms = 1'200;
    options.request_timeout_ms = 700;
    options.peer_bytes_max = 512u << 10;
    options.software = "simulation";
    return std::make_unique<mooncake::node::Node>(options);
}

void Cluster::start_node(std::size_t index) {
    NodeProcess& process = nodes_[index];
    world_.spawn(*process.host, "start", [this, index, &process] {
        process.node = make_node(index);
        process.node->start();
        process.is_running = true;
        process.has_served = false;
        process.expulsions_seen = 0;
        process.has_leftovers = false;
        process.draining = 0;
        ++process.lives;
    });
}

void Cluster::crash_node(std::size_t index, bool is_told, Ms down_ms) {
    NodeProcess& process = nodes_[index];
    ++node_crashes_;
    process.is_running = false;
    process.host->is_down = true;
    process.host->is_silent = !is_told;
    world_.go_on(*process.host);
    kernel_.sever(*process.host, is_told);
    const Ms up_ms = world_.now_ms() + down_ms;
    // What is left of the process ends in good order, but nobody hears or sees it any more.
    world_.spawn(*process.host, "crash", [this, index, up_ms, &process] {
        process.node->stop();
        process.node.reset();
        if (world_.now_ms() < up_ms) world_.wait(up_ms);
        process.host->is_down = false;
        kernel_.revive(*process.host);
        if (!is_stopping) start_node(index);
    });
}

bool Cluster::lose_record(std::size_t index) {
    Random& random = world_.random();
    return nodes_[index].node->holdings()->with_directory([&](mooncake::node::Directory& directory) {
        const auto segment = directory.segment_id(
            static_cast<mooncake::node::SegmentIndex>(random.below(directory.segment_count())));
        std::vector<mooncake::wire::ReplicaId> held;
        for (std::size_t part = 0; part < mooncake::node::Directory::kInventoryParts; ++part) {
            const auto more = directory.settled(segment, ~mooncake::wire::ReplicaId{0}, part);
            held.insert(held.end(), more.begin(), more.end());
        }
        if (segment == 0 || held.empty()) return false;
        std::sort(held.begin(), held.end());
        std::vector<mooncake::wire::ReplicaId> freed;
        const auto lost = random.pick(held);
        directory.retire({&lost, 1}, freed);
        // While somebody reads it nobody charges its range.
        nodes_[index].has_leftovers = nodes_[index].has_leftovers || freed.empty();
        ++lost_records_;
        return true;
    });
}

bool Cluster::add_stray_record(std::size_t index) {
    NodeProcess& process = nodes_[index];
    const bool is_added =
        process.node->holdings()->with_directory([&](mooncake::node::Directory& directory) {
            // The segment's own id: no replica's.
            const auto id = directory.segment_id(0);
            mooncake::wire::ValueHeader header;
            header.put_id = id;
            header.key = "stray";
            header.tenant = "nobody";
            mooncake::wire::Buffer encoded;
            mooncake::wire::Writer writer(encoded);
            mooncake::wire::encode(header, writer);
            if (id == 0) return false;
            const auto granted =
                directory.begin_write({id, id, 0, static_cast<std::uint32_t>(encoded.size()), 0}, encoded,
                                      directory.epoch());
            return mooncake::wire::ok(granted.status) && mooncake::wire::ok(directory.seal(id));
        });
    process.has_leftovers = process.has_leftovers || is_added;  // nobody charges it
    return is_added;
}

void Cluster::start_client(std::size_t index) {
    ClientProcess& process = clients_[index];
    world_.spawn(*process.host, "start", [this, index, &process] {
        mooncake::client::Options options;
        options.masters = doors();
        if (options.masters.empty()) options.lane = ip(*masters_[0].host) + ":" + std::to_string(kLanePort);
        options.name = process.host->name;
        options.host_id = "host" + std::to_string(index);
        options.connections_a_peer_max = static_cast<std::uint32_t>(1 + index % 3);
        options.bytes_in_flight_a_peer_max = 1u << 20;
        options.checksums = plan_.checksums;
        options.location_cache_max = plan_.location_cache_max;
        std::string why;
        auto status = mooncake::wire::Status::kOk;
        while (!is_stopping) {
            process.client = mooncake::client::Client::connect(options, why, status);
            if (process.client) break;
            world_.sleep(50);
        }
        if (!process.client) return;
        ++process.life;
        process.is_running = true;
        client_started(index);
    });
}

void Cluster::crash_client(std::size_t index, bool is_told, Ms down_ms) {
    ClientProcess& process = clients_[index];
    process.is_running = false;
    ++process.life;
    process.host->is_down = true;
    process.host->is_silent = !is_told;
    world_.go_on(*process.host);
    kernel_.sever(*process.host, is_told);
    const Ms up_ms = world_.now_ms() + down_ms;
    world_.spawn(*process.host, "crash", [this, index, up_ms, &process] {
        process.client->close();
        while (process.calls > 0) world_.sleep(10);
        process.client.reset();
        if (world_.now_ms() < up_ms) world_.wait(up_ms);
        process.host->is_down = false;
        kernel_.revive(*process.host);
        if (!is_stopping) start_client(index);
    });
}

void Cluster::stop() {
    is_stopping = true;
    std::vector<Fiber*> ends;
    for (auto& process : clients_) {
        if (!process.client || !process.is_running) continue;
        ends.push_back(world_.spawn(*process.host, "stop", [&process] {
            process.client->close();
            process.client.reset();
        }));
    }
    for (Fiber* end : std::exchange(ends, {})) world_.join(end);
    for (auto& process : nodes_) {
        if (!process.node || !process.is_running) continue;
        process.is_running = false;
        ends.push_back(world_.spawn(*process.host, "stop", [&process] {
            process.node->stop();
            process.node.reset();
        }));
    }
    for (Fiber* end : std::exchange(ends, {})) world_.join(end);
    MasterProcess& process = masters_[current_];
    if (process.is_over) *process.is_over = true;
    world_.join(world_.spawn(*process.host, "stop", [&process] {
        process.master->stop();
        process.master.reset();
    }));
}

}  // namespace simulation
