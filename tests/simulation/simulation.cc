// simulation --first N --seeds M --steps K [--hashes]: runs the seeds N .. N + M - 1, about K calls each.
//
// Ends with 0 and a summary, or with 1 at the first seed that fails: that seed is run again with its lines
// kept, to tell the story of the key that went wrong.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "run.h"

namespace {

struct Arguments {
    std::uint64_t first = 1;
    std::uint64_t seeds = 1;
    std::uint64_t steps = 400;
    bool keeps_lines = false;  // --story: of a seed that failed
    bool prints_hashes = false;
};

Arguments g_arguments;
std::uint64_t g_seed = 0;
const char* g_program = nullptr;

void tell(const std::string& text) {
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
}

[[noreturn]] void tell_and_end(const std::string& what, const std::string& key) {
    const std::string seed = std::to_string(g_seed);
    const std::string steps = std::to_string(g_arguments.steps);
    if (g_arguments.keeps_lines) {
        tell(simulation::describe_run(key) + "seed " + seed + " failed: " + what +
             "\nreplay: make sim SEED=" + seed + " STEPS=" + steps + "\n");
        std::_Exit(1);
    }
    tell("seed " + seed + " failed: " + what + "\n");
    ::execl("/proc/self/exe", g_program, "--first", seed.c_str(), "--seeds", "1", "--steps", steps.c_str(),
            "--story", static_cast<char*>(nullptr));
    std::_Exit(1);
}

// A core that finds itself broken aborts.
void on_abort(int) {
    ::signal(SIGABRT, SIG_DFL);
    sigset_t abort;
    sigemptyset(&abort);
    sigaddset(&abort, SIGABRT);
    ::sigprocmask(SIG_UNBLOCK, &abort, nullptr);
    tell_and_end("aborted, see above", "");
}

Arguments parse(int argc, char** argv) {
    Arguments arguments;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (name == "--story") {
            arguments.keeps_lines = true;
            continue;
        }
        if (name == "--hashes") {
            arguments.prints_hashes = true;
            continue;
        }
        char* end = nullptr;
        const auto value = i + 1 < argc ? std::strtoull(argv[i + 1], &end, 10) : 0;
        if (end == nullptr || *end != '\0' || value == 0) {
            tell("usage: simulation [--first N] [--seeds M] [--steps K] [--hashes]; '" + name +
                 "' is not that\n");
            std::exit(2);
        }
        ++i;
        if (name == "--first") {
            arguments.first = value;
        } else if (name == "--seeds") {
            arguments.seeds = value;
        } else if (name == "--steps") {
            arguments.steps = value;
        } else {
            tell("simulation: unknown " + name + "\n");
            std::exit(2);
        }
    }
    return arguments;
}

template <class Map>
void print(const char* title, const Map& counts) {
    std::printf("%s:", title);
    for (const auto& [name, count] : counts) {
        if (count > 0) std::printf(" %s=%llu", name.c_str(), static_cast<unsigned long long>(count));
    }
    std::printf("\n");
}

void print_summary(const simulation::Totals& totals) {
    const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::printf("%llu seeds, %llu steps, %llu s of world time, %llu hits of %llu bytes, %llu misses judged\n",
                number(totals.seeds), number(totals.steps), number(totals.world_ms / 1'000),
                number(totals.calls.hits), number(totals.calls.hit_bytes), number(totals.misses_judged));
    print("calls", totals.calls.calls);
    std::map<std::string, std::uint64_t> answers;
    for (const auto& [what, count] : totals.calls.answers) {
        answers[what.first + "." + mooncake::wire::status_name(what.second)] += count;
    }
    answers["crashed_calls"] = totals.calls.crashed_calls;
    print("answers", answers);
    std::map<std::string, std::uint64_t> faults;
    for (std::size_t i = 0; i < totals.faults.of.size(); ++i) {
        faults[simulation::kFaultNames[i]] = totals.faults.of[i];
    }
    print("faults", faults);
    std::map<std::string, std::uint64_t> mixes;
    for (std::size_t i = 0; i < totals.mixes.size(); ++i) mixes[simulation::kMixNames[i]] = totals.mixes[i];
    print("seeds", mixes);
    std::map<std::string, std::uint64_t> master;
    for (const auto& [name, count] : totals.master) {
        if (name.ends_with("_total")) master[name.substr(0, name.size() - 6)] = count;
    }
    print("master", master);
    print("lane", totals.answers);
    print("nodes", totals.nodes);
}

}  // namespace

namespace simulation {

void violated(const std::string& what) {
    const auto at = what.rfind("\nkey: ");
    tell_and_end(what.substr(0, at), at == std::string::npos ? std::string() : what.substr(at + 6));
}

}  // namespace simulation

int main(int argc, char** argv) {
    g_program = argv[0];
    g_arguments = parse(argc, argv);
    ::signal(SIGABRT, on_abort);
    simulation::Totals totals;
    for (std::uint64_t i = 0; i < g_arguments.seeds; ++i) {
        g_seed = g_arguments.first + i;
        const auto hash = simulation::run_seed(g_seed, g_arguments.steps, g_arguments.keeps_lines, totals);
        if (g_arguments.prints_hashes) {
            std::printf("seed %llu: %016llx\n", static_cast<unsigned long long>(g_seed),
                        static_cast<unsigned long long>(hash));
        }
    }
    print_summary(totals);
    return 0;
}
