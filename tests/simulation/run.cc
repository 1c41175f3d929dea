#include "run.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <memory>

#include "audit.h"
#include "data_watch.h"
#include "lane_watch.h"

namespace simulation {

namespace wire = mooncake::wire;

namespace {

constexpr Ms kFaultPeriodMs = 100;
constexpr Ms kBusyMaxMs = 120'000;   // a run whose calls make no progress
constexpr Ms kSettleMs = 6'000;      // beyond every deadline of the plan
constexpr Ms kQuestionsOfATask = 3;  // each with a deadline of its own: a rebuild may take the whole of one
constexpr Ms kEmptyMs = 2'500;       // for the last retires and reports
constexpr Ms kRepeatAnswerMs = 2'000;
constexpr std::uint64_t kRepeatFrameBytesMax = 64u << 10;
constexpr std::size_t kStoryLinesMax = 400;

class Run {
  public:
    Run(std::uint64_t seed, std::uint64_t calls_max, bool keeps_lines, Totals& totals)
        : totals_(totals),
          world_(seed),
          plan_(draw_plan(world_.random())),
          journal_(world_, keeps_lines),
          history_([this] { return audit_->losses(); }, [this] { return cluster_.has_old_master(); },
                   plan_.location_cache_max != 0),
          watch_(kLanePort, plan_.master.metadata.client_ttl_ms, history_, journal_),
          data_watch_(kDataPort, journal_),
          kernel_(world_, weather(), plan_.window_bytes, faults_,
                  [this](const Socket& from, std::span<const std::uint8_t> bytes) {
                      watch_.sent(from, bytes);
                      data_watch_.sent(from, bytes);
                  }),
          cluster_(world_, kernel_, plan_),
          workload_(world_, cluster_, plan_, history_, journal_, totals.calls, calls_max,
                    [this](const std::string& key) { return audit_->why(key); }),
          ghost_(world_.add_host("ghost")) {
        audit_ = std::make_unique<Audit>(cluster_);
        cluster_.master_ends = [this](mooncake::master::Master& master) {
            for (const auto& [name, value] : master.stats()) {
                totals_.master[name] += value;
                if (name == "reconcile_mismatches_total") mismatches_ += value;
            }
        };
        cluster_.reign_ends = [this] { audit_->reign_ends(); };
        cluster_.client_started = [this](std::size_t client) { workload_.start_callers(client); };
        watch_.on_retired = [this](std::span<const wire::ReplicaId> replicas) {
            data_watch_.retired(replicas);
        };
        watch_.on_request([this](const Socket& from, const wire::Buffer& hello, const wire::Buffer& frame) {
            maybe_repeat(from, hello, frame);
        });
    }

    std::uint64_t go();
    std::string describe(const std::string& key) const;

  private:
    std::unique_ptr<Weather> weather();
    void run_until(const std::function<bool()>& is_reached, const char* what, Ms limit_ms);
    void let_pass(Ms delay_ms);
    void on_fiber(Host& host, const std::function<void()>& body, const char* what, Ms limit_ms);
    void misfortune();
    void misfortune_of_node(std::size_t index);
    void misfortune_of_master();
    Ms a_while();
    void strike(Fault fault, const std::string& what);
    void pause(Fault fault, Host& host);
    void cut();
    void heal();
    void maybe_repeat(const Socket& from, const wire::Buffer& hello, const wire::Buffer& frame);
    static void ask_again(const Address& lane, const wire::Buffer& hello, const wire::Buffer& frame);
    void add_totals();
    void stop();

    Totals& totals_;
    World world_;
    FaultCounts faults_;
    bool faults_are_on_ = false;
    Partitions::Cuts cuts_;
    const Plan plan_;
    const std::vector<Ms> deadlines_ = plan_.deadlines();
    Journal journal_;
    History history_;
    LaneWatch watch_;
    DataWatch data_watch_;
    Kernel kernel_;
    Cluster cluster_;
    Workload workload_;
    Host& ghost_;
    std::unique_ptr<Audit> audit_;
    std::uint64_t mismatches_ = 0;  // between nodes and masters
};

Run* g_run = nullptr;

std::unique_ptr<Weather> Run::weather() {
    Random& random = world_.random();
    std::unique_ptr<Weather> weather =
        std::make_unique<FairWeather>(random, plan_.latency_max_ms, plan_.bytes_a_ms);
    weather = std::make_unique<IllHosts>(std::move(weather));
    weather = std::make_unique<Partitions>(std::move(weather), cuts_);
    weather = std::make_unique<Delays>(std::move(weather), random, plan_.delays, plan_.deadlines(),
                                       faults_are_on_, faults_);
    return std::make_unique<Resets>(std::move(weather), random, plan_.resets, faults_are_on_, faults_);
}

// ---- the world goes on

void Run::run_until(const std::function<bool()>& is_reached, const char* what, Ms limit_ms) {
    const Ms until_ms = world_.now_ms() + limit_ms;
    while (!is_reached()) {
        if (!world_.advance()) violated(std::string("nothing can happen any more while waiting for ") + what);
        if (world_.now_ms() > until_ms) {
            violated(std::string(what) + ": not within " + std::to_string(limit_ms) + " ms");
        }
        audit_->after_step(world_.last_host());
        workload_.check_deadlines();
    }
}

void Run::let_pass(Ms delay_ms) {
    const Ms until_ms = world_.now_ms() + delay_ms;
    world_.at(until_ms, [] {});
    run_until([&] { return world_.now_ms() >= until_ms; }, "time to pass", delay_ms + 1);
}

void Run::on_fiber(Host& host, const std::function<void()>& body, const char* what, Ms limit_ms) {
    bool is_done = false;
    world_.spawn(host, what, [&] {
        body();
        is_done = true;
    });
    run_until([&] { return is_done; }, what, limit_ms);
}

std::uint64_t Run::go() {
    g_run = this;
    bool is_mounted = false;
    cluster_.start();
    while (!is_mounted) {  // before that there is nothing to audit
        world_.advance();
        is_mounted =
            std::all_of(cluster_.nodes().begin(), cluster_.nodes().end(), [](const NodeProcess& process) {
                return process.is_running && process.node->status().control.mounted;
            });
    }
    faults_are_on_ = true;
    misfortune();
    run_until([&] { return workload_.is_over(); }, "the calls", kBusyMaxMs);
    heal();
    run_until([&] { return workload_.calls_under_way() == 0; }, "the last calls",
              kQuestionsOfATask * kSettleMs);
    run_until(
        [&] {
            cluster_.kill_old_masters();
            const auto runs = [](const auto& process) { return process.is_running; };
            return cluster_.has_master() && !cluster_.is_taken_over() && !cluster_.has_old_master() &&
                   std::all_of(cluster_.nodes().begin(), cluster_.nodes().end(), runs) &&
                   std::all_of(cluster_.clients().begin(), cluster_.clients().end(), runs);
        },
        "the processes to be back", kSettleMs);
    let_pass(kSettleMs);
    audit_->check_no_unfinished_put();
    run_until([&] { return audit_->master_count("copy_count") == 0; }, "the copies to end", kSettleMs);
    audit_->check_charges_at_rest();
    mismatches_ += audit_->master_count("reconcile_mismatches_total");
    if (mismatches_ > 0 && plan_.wrong_records == 0) {
        violated("a node and its master are said to differ, but no node has a wrong record");
    }
    for (std::size_t i = 0; i < cluster_.clients().size(); ++i) {
        on_fiber(
            *cluster_.clients()[i].host, [this, i] { workload_.check_pool(i); }, "the pool to work",
            kSettleMs);
    }
    on_fiber(
        *cluster_.clients()[0].host, [this] { workload_.remove_everything(); }, "removing all", kSettleMs);
    let_pass(kEmptyMs);
    audit_->check_empty();
    add_totals();
    stop();
    g_run = nullptr;
    return journal_.hash();
}

void Run::stop() {
    bool is_done = false;
    world_.spawn(cluster_.master_host(), "stop", [&] {
        cluster_.stop();
        is_done = true;
    });
    const Ms until_ms = world_.now_ms() + kSettleMs;
    while (!is_done) {
        if (!world_.advance() || world_.now_ms() > until_ms) violated("the processes do not stop");
    }
    while (world_.advance()) {
        if (world_.now_ms() > until_ms + kSettleMs)
            violated("something goes on although every process has stopped");
    }
    if (kernel_.open_files() > 0)
        violated(std::to_string(kernel_.open_files()) + " descriptors were left open");
}

// ---- what goes wrong

void Run::misfortune() {
    if (!faults_are_on_) return;
    world_.at(world_.now_ms() + kFaultPeriodMs, [this] { misfortune(); });
    Random& random = world_.random();
    const std::size_t client = random.below(plan_.clients);
    Host& client_host = *cluster_.clients()[client].host;
    if (random.chance(plan_.client_crashes) && cluster_.clients()[client].is_running) {
        strike(Fault::kClientCrash, client_host.name + " crashes");
        cluster_.crash_client(client, random.chance(5'000), a_while());
    } else if (random.chance(plan_.client_pauses)) {
        pause(Fault::kClientPause, client_host);
    }
    misfortune_of_master();
    if (random.chance(plan_.partitions)) cut();
    misfortune_of_node(random.below(plan_.nodes));
}

Ms Run::a_while() {
    Random& random = world_.random();
    return random.chance(5'000) ? random.pick(deadlines_) + random.below(3) - 1 : random.between(1, 3'000);
}

void Run::strike(Fault fault, const std::string& what) {
    ++faults_[fault];
    journal_.line("fault", what);
}

void Run::pause(Fault fault, Host& host) {
    if (host.is_stopped || host.is_down) return;
    const Ms until_ms = world_.now_ms() + a_while();
    strike(fault, host.name + " stops until " + std::to_string(until_ms) + " ms");
    world_.stop(host, until_ms);
}

// Two processes, any, in one direction or both.
void Run::cut() {
    Random& random = world_.random();
    auto& hosts = world_.hosts();
    Host& from = hosts[random.below(hosts.size())];
    Host& to = hosts[random.below(hosts.size())];
    if (&from == &to || &from == &ghost_ || &to == &ghost_) return;
    const Ms until_ms = world_.now_ms() + a_while();
    const bool is_one_way = random.chance(4'000);
    strike(is_one_way ? Fault::kOneWayPartition : Fault::kPartition,
           "what " + from.name + " sends to " + to.name + (is_one_way ? "" : ", and back,") +
               " waits until " + std::to_string(until_ms) + " ms");
    cuts_[{&from, &to}] = until_ms;
    if (!is_one_way) cuts_[{&to, &from}] = until_ms;
}

void Run::misfortune_of_master() {
    Random& random = world_.random();
    if (!cluster_.has_master() || cluster_.is_taken_over()) return;
    const std::string& name = cluster_.master_host().name;
    if (random.chance(plan_.master_crashes)) {
        strike(Fault::kMasterCrash, name + " crashes");
        if (cluster_.crash_master(random.chance(5'000), a_while(), random.chance(5'000))) {
            strike(Fault::kMove, "the next master starts at another address");
        }
    } else if (random.chance(plan_.takeovers)) {
        const Ms until_ms = world_.now_ms() + a_while();
        if (cluster_.take_over(random.between(1, 800), until_ms, a_while())) {
            strike(Fault::kTakeover,
                   name + " stops until " + std::to_string(until_ms) + " ms, another takes over");
        }
    } else if (random.chance(plan_.master_pauses)) {
        pause(Fault::kMasterPause, cluster_.master_host());
    }
}

void Run::misfortune_of_node(std::size_t index) {
    Random& random = world_.random();
    NodeProcess& node = cluster_.nodes()[index];
    Host& host = *node.host;
    if (!node.is_running) return;
    if (plan_.wrong_records > 0 && random.chance(plan_.wrong_records)) {
        if (random.chance(6'000) ? cluster_.lose_record(index) : false) {
            strike(Fault::kLostRecord, host.name + " drops a value");
        } else if (cluster_.add_stray_record(index)) {
            strike(Fault::kStrayRecord, host.name + " holds what nobody granted");
        }
    }
    if (random.chance(plan_.node_crashes)) {
        strike(Fault::kNodeCrash, host.name + " crashes");
        cluster_.crash_node(index, random.chance(5'000), a_while());
    } else if (random.chance(plan_.node_pauses)) {
        pause(Fault::kNodePause, host);
    } else if (random.chance(plan_.node_silences)) {
        host.muted_until = world_.now_ms() + a_while();
        strike(Fault::kNodeSilence,
               host.name + " is silent until " + std::to_string(host.muted_until) + " ms");
    } else if (random.chance(plan_.slow_nodes)) {
        host.slowness = static_cast<std::uint32_t>(random.between(5, 60));
        strike(Fault::kSlowNode, host.name + " is slow by " + std::to_string(host.slowness));
        world_.at(world_.now_ms() + a_while(), [&host] { host.slowness = 1; });
    }
}

void Run::heal() {
    faults_are_on_ = false;
    workload_.is_stopped = true;
    for (auto& [hosts, until_ms] : cuts_) until_ms = 0;
    cluster_.kill_old_masters();
    for (Host& host : world_.hosts()) {
        world_.go_on(host);
        host.muted_until = std::min(host.muted_until, world_.now_ms());
        host.slowness = 1;
    }
    journal_.line("fault", "all faults are over");
}

// The network holds on to a request of a connection that its client has long given up, and delivers it late.
void Run::maybe_repeat(const Socket& from, const wire::Buffer& hello, const wire::Buffer& frame) {
    Random& random = world_.random();
    if (from.host == &ghost_ || !faults_are_on_ || frame.size() > kRepeatFrameBytesMax) return;
    if (!random.chance(plan_.repeats)) return;
    ++faults_[Fault::kRepeat];
    const Ms delay_ms = random.chance(3'000) ? random.pick(plan_.deadlines()) : random.below(100);
    world_.at(world_.now_ms() + delay_ms, [this, lane = from.remote, hello, frame] {
        world_.spawn(ghost_, "repeat", [lane, hello, frame] { ask_again(lane, hello, frame); });
    });
}

void Run::ask_again(const Address& lane, const wire::Buffer& hello, const wire::Buffer& frame) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(lane.port);
    address.sin_addr.s_addr = htonl(lane.host);
    ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    pollfd entry{fd, POLLOUT, 0};
    ::poll(&entry, 1, static_cast<int>(kRepeatAnswerMs));
    ::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL);
    ::send(fd, frame.data(), frame.size(), MSG_NOSIGNAL);
    // Whatever is answered, for as long as a client would have listened.
    const Ms until_ms = World::current()->now_ms() + kRepeatAnswerMs;
    std::array<std::uint8_t, 4096> ignored;
    while (World::current()->now_ms() < until_ms) {
        entry.events = POLLIN;
        ::poll(&entry, 1, static_cast<int>(until_ms - World::current()->now_ms()));
        if (::recv(fd, ignored.data(), ignored.size(), MSG_DONTWAIT) == 0 || (entry.revents & POLLERR) != 0)
            break;
    }
    ::close(fd);
}

// ---- what is told of it

void Run::add_totals() {
    ++totals_.seeds;
    totals_.steps += world_.step();
    totals_.world_ms += world_.now_ms();
    totals_.misses_judged += history_.misses_judged();
    ++totals_.mixes[static_cast<std::size_t>(plan_.mix)];
    for (std::size_t i = 0; i < faults_.of.size(); ++i) totals_.faults.of[i] += faults_.of[i];
    cluster_.master_ends(cluster_.master());
    for (const auto& process : cluster_.nodes()) {
        const auto counts = process.node->status().counts;
        totals_.nodes["drains"] += process.drains;
        totals_.nodes["gone"] += counts.gone;
        totals_.nodes["stale_grants"] += counts.stale_grants;
        totals_.nodes["no_ranges"] += counts.no_ranges;
        totals_.nodes["fenced_refusals"] += counts.fenced_refusals;
        totals_.nodes["expulsions"] += process.node->status().control.expulsions_total;
    }
    for (const auto& process : cluster_.clients()) {
        if (!process.client) continue;
        const auto counts = process.client->location_counts();
        totals_.nodes["remembered"] += counts.hits;
        totals_.nodes["stale"] += counts.stale;
    }
    for (const auto& [what, count] : watch_.answers) {
        const std::string name =
            std::string(wire::verb_name(what.first)) + "." + wire::status_name(what.second);
        totals_.answers[name] += count;
    }
}

std::string Run::describe(const std::string& key) const {
    std::string text = "at step " + std::to_string(world_.step()) + ", " + std::to_string(world_.now_ms()) +
                       " ms; faults so far:";
    for (std::size_t i = 0; i < faults_.of.size(); ++i) {
        text += std::string(" ") + kFaultNames[i] + " " + std::to_string(faults_.of[i]);
    }
    text += "\n";
    if (!journal_.keeps_lines()) return text;
    text += key.empty() ? "the last of all that happened:\n" : "the story of '" + key + "':\n";
    return text + journal_.story(key, kStoryLinesMax);
}

}  // namespace

std::uint64_t run_seed(std::uint64_t seed, std::uint64_t calls_max, bool keeps_lines, Totals& totals) {
    Run run(seed, calls_max, keeps_lines, totals);
    return run.go();
}

std::string describe_run(const std::string& key) {
    return g_run != nullptr ? g_run->describe(key) : std::string();
}

}  // namespace simulation
