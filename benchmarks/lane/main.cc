// lane_load HOST PORT PID: reads one work a line, answers its figures as one line of JSON.
//
//   nodes COUNT BYTES          nodes of one segment each join and stay
//   fill FROM COUNT            batches exists|lookup TABLE COUNT
//   singles CONNECTIONS DEPTH TABLE MS
//   others nobody|batches|eviction|scan|inventory TABLE MS
//   idle MS                    inserts KEYS                replacement LEAST MOST SEGMENT
// The last two ask no master: HOST PORT PID may be left out.
#include <csignal>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "inside.h"
#include "node.h"
#include "works.h"

namespace {

using namespace mooncake;
using bench::Figures;

bench::Crowd crowd_named(const std::string& name) {
    static const std::map<std::string, bench::Crowd> crowds{{"nobody", bench::Crowd::kNobody},
                                                            {"batches", bench::Crowd::kBatches},
                                                            {"eviction", bench::Crowd::kEviction},
                                                            {"scan", bench::Crowd::kScan},
                                                            {"inventory", bench::Crowd::kInventory}};
    const auto found = crowds.find(name);
    if (found == crowds.end()) bench::fail("no crowd is called " + name);
    return found->second;
}

class Works {
  public:
    explicit Works(bench::Master master) : master_(std::move(master)) {}

    Figures run(const std::string& line) {
        std::istringstream words(line);
        std::string work;
        words >> work;
        if (work == "nodes") {
            const auto count = number(words);
            nodes_.push_back(std::make_unique<bench::Nodes>(master_.target, count, number(words)));
            return {};
        }
        if (work == "fill") {
            const auto from = number(words);
            return bench::fill(master_, from, number(words));
        }
        if (work == "batches") {
            std::string verb;
            words >> verb;
            const auto table = number(words);
            return bench::batches(master_, verb == "lookup" ? wire::Verb::kLookup : wire::Verb::kExists,
                                  table, number(words));
        }
        if (work == "singles") {
            const auto connections = number(words);
            const auto depth = number(words);
            const auto table = number(words);
            return bench::singles(master_, connections, depth, table, number(words));
        }
        if (work == "others") {
            std::string crowd;
            words >> crowd;
            const auto table = number(words);
            return bench::others(master_, crowd_named(crowd), table, number(words));
        }
        if (work == "idle") return bench::idle(master_, number(words));
        if (work == "inserts") return bench::inserts(number(words));
        if (work == "replacement") {
            const auto least = number(words);
            const auto most = number(words);
            return bench::replacement(least, most, number(words));
        }
        bench::fail("no work is called " + work);
    }

  private:
    static std::uint64_t number(std::istringstream& words) {
        std::uint64_t value = 0;
        if (!(words >> value)) bench::fail("a number is missing");
        return value;
    }

    const bench::Master master_;
    std::vector<std::unique_ptr<bench::Nodes>> nodes_;
};

}  // namespace

int main(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN);
    bench::Master master;
    if (argc == 4) {
        master.target = {argv[1], static_cast<std::uint16_t>(std::stoi(argv[2]))};
        master.pid = std::stoi(argv[3]);
    }
    Works works(master);
    for (std::string line; std::getline(std::cin, line);) {
        std::string json;
        for (const auto& [name, value] : works.run(line)) {
            json += (json.empty() ? "\"" : ", \"") + name + "\": " + std::to_string(value);
        }
        std::printf("{%s}\n", json.c_str());
        std::fflush(stdout);
    }
    return 0;
}
