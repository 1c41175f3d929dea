#include "cluster.h"

#include <algorithm>

#include "net/endpoint.h"

namespace simulation {

namespace {

std::string ip(const Host& host) {
    const auto part = [&](unsigned shift) { return std::to_string((host.address >> shift) & 0xFF); };
    return part(24) + "." + part(16) + "." + part(8) + "." + part(0);
}

}  // namespace

Cluster::Cluster(World& world, Kernel& kernel, const Plan& plan)
    : world_(world), kernel_(kernel), plan_(plan) {
    master_host_ = &world_.add_host("master");
    for (std::size_t i = 0; i < plan.nodes; ++i) {
        nodes_.emplace_back().host = &world_.add_host("node" + std::to_string(i));
    }
    for (std::size_t i = 0; i < plan.clients; ++i) {
        clients_.emplace_back().host = &world_.add_host("client" + std::to_string(i));
    }
}

void Cluster::start() {
    world_.spawn(*master_host_, "start", [this] {
        start_master();
        for (std::size_t i = 0; i < nodes_.size(); ++i) start_node(i);
        for (std::size_t i = 0; i < clients_.size(); ++i) start_client(i);
    });
}

// From a fiber of its host.
void Cluster::start_master() {
    auto options = plan_.master;
    options.lane_host = ip(*master_host_);
    options.lane_port = kLanePort;
    options.software = "simulation";
    options.epoch = ++reigns_;  // as the daemon's state file gives it
    master_ = std::make_unique<mooncake::master::Master>(options);
    master_->start();
    master_is_running_ = true;
}

void Cluster::crash_master(bool is_told, Ms down_ms) {
    master_ends();
    master_is_running_ = false;
    master_host_->is_down = true;
    master_host_->is_silent = !is_told;
    world_.go_on(*master_host_);
    kernel_.sever(*master_host_, is_told);
    const Ms up_ms = world_.now_ms() + down_ms;
    world_.spawn(*master_host_, "crash", [this, up_ms] {
        master_->stop();
        master_.reset();
        if (world_.now_ms() < up_ms) world_.wait(up_ms);
        master_host_->is_down = false;
        kernel_.revive(*master_host_);
        start_master();
    });
}

std::unique_ptr<mooncake::node::Node> Cluster::make_node(std::size_t index) {
    const Host& host = *nodes_[index].host;
    mooncake::node::NodeOptions options;
    for (std::size_t i = 0; i < plan_.segments_a_node; ++i) {
        options.segments.push_back(
            {host.name + "#" + std::to_string(i), plan_.capacities[index] / plan_.segments_a_node});
    }
    options.lane = ip(*master_host_) + ":" + std::to_string(kLanePort);
    options.data_host = ip(host);
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
        process.was_fenced = true;
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

bool Cluster::serves(mooncake::wire::ReplicaId replica) {
    return std::any_of(nodes_.begin(), nodes_.end(), [&](NodeProcess& process) {
        if (!process.is_running) return false;
        return process.node->holdings()->with_directory([&](mooncake::node::Directory& directory) {
            std::vector<mooncake::wire::InventoryItem> items;
            mooncake::wire::Buffer headers;
            mooncake::wire::Writer writer(headers);
            return directory.describe(replica, items, writer);
        });
    });
}

void Cluster::start_client(std::size_t index) {
    ClientProcess& process = clients_[index];
    world_.spawn(*process.host, "start", [this, index, &process] {
        mooncake::client::Options options;
        options.lane = ip(*master_host_) + ":" + std::to_string(kLanePort);
        options.name = process.host->name;
        options.host_id = "host" + std::to_string(index);
        options.connections_a_peer_max = static_cast<std::uint32_t>(1 + index % 3);
        options.bytes_in_flight_a_peer_max = 1u << 20;
        options.checksums = plan_.checksums;
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
    world_.join(world_.spawn(*master_host_, "stop", [this] {
        master_->stop();
        master_.reset();
    }));
}

}  // namespace simulation
