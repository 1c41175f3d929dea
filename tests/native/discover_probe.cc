// Asks discover() from the command line, so that tests can point it at servers written in Python:
// discover_probe HOST PORT TIMEOUT_MS prints what it found, one "name value" a line.
#include <cstdio>
#include <cstdlib>

#include "net/discover.h"

int main(int argc, char** argv) {
    using namespace mooncake;
    if (argc != 4) return 2;
    const net::Endpoint master{argv[1], static_cast<std::uint16_t>(std::atoi(argv[2]))};
    const auto found = net::discover(master, static_cast<std::uint64_t>(std::atoi(argv[3])));
    std::printf("found %d\nlane %s\nepoch %llu\nmaster ", found.found, net::to_text(found.lane).c_str(),
                static_cast<unsigned long long>(found.epoch));
    for (const auto byte : found.master) std::printf("%02x", byte);
    std::printf("\nsoftware %s\nwhy %s\n", found.software.c_str(), found.why.c_str());
    return 0;
}
