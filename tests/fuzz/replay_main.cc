// Runs a fuzz target without libFuzzer: over files, and over seeded mutations of them. Also writes the
// target's seeds.
//
//   TARGET_replay FILE_OR_FOLDER...                      each file once
//   TARGET_replay --mutations=N [--seed=S] FOLDER...     and N inputs made of them, the same ones each time
//   TARGET_replay --write-seeds=FOLDER
//
// When a run dies, the input that it died of is left in --crash=FILE (default crash-<target>) and named.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>

#include "fuzz.h"

namespace {

namespace files = std::filesystem;
using mooncake::wire::Buffer;

constexpr std::size_t kInputBytesMax = 16'384;

const Buffer* running = nullptr;
std::string crash_file;

// Async-signal-safe: what the process was doing when it died, in a file.
extern "C" void on_death(int number) {
    const int fd = ::open(crash_file.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (fd >= 0 && running != nullptr) {
        [[maybe_unused]] auto written = ::write(fd, running->data(), running->size());
        ::close(fd);
        written = ::write(STDERR_FILENO, "the input is in ", 16);
        written = ::write(STDERR_FILENO, crash_file.data(), crash_file.size());
        written = ::write(STDERR_FILENO, "\n", 1);
    }
    std::signal(number, SIG_DFL);
    std::raise(number);
}

void run(const Buffer& input) {
    running = &input;
    // A copy of its own length, so that a sanitizer sees the first byte read beyond it.
    const Buffer exact(input.begin(), input.end());
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
    running = nullptr;
}

Buffer read_file(const files::path& path) {
    std::ifstream file(path, std::ios::binary);
    return Buffer(std::istreambuf_iterator<char>(file), {});
}

std::vector<Buffer> read_all(const std::vector<files::path>& paths) {
    std::vector<files::path> names;
    for (const auto& path : paths) {
        if (!files::is_directory(path)) {
            names.push_back(path);
            continue;
        }
        for (const auto& entry : files::directory_iterator(path)) names.push_back(entry.path());
    }
    std::sort(names.begin(), names.end());
    std::vector<Buffer> inputs;
    for (const auto& name : names) inputs.push_back(read_file(name));
    return inputs;
}

// One of a handful of small damages, as real ones are: a flipped bit, a number at an edge, a piece lost,
// repeated or taken from another input.
void mutate(Buffer& input, const std::vector<Buffer>& others, std::mt19937_64& random) {
    const auto below = [&](std::size_t end) {
        return end == 0 ? 0 : static_cast<std::size_t>(random() % end);
    };
    const std::size_t at = below(input.size());
    const std::size_t length = std::min(below(32) + 1, input.size() - at);
    const auto from = input.begin() + static_cast<std::ptrdiff_t>(at);
    switch (input.empty() ? 4 : below(7)) {
        case 0:
            input[at] = static_cast<std::uint8_t>(input[at] ^ (1U << below(8)));
            break;
        case 1:
            input[at] = static_cast<std::uint8_t>(random());
            break;
        case 2: {
            static constexpr std::array<std::uint64_t, 8> kEdges = {
                0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, ~std::uint64_t{0}};
            const std::uint64_t edge = kEdges[below(kEdges.size())];
            std::memcpy(input.data() + at, &edge, std::min({input.size() - at, std::size_t{1} << below(4)}));
            break;
        }
        case 3:
            input.erase(from, from + static_cast<std::ptrdiff_t>(length));
            break;
        case 4:
            input.insert(input.begin() + static_cast<std::ptrdiff_t>(at),
                         static_cast<std::uint8_t>(random()));
            break;
        case 5: {
            const Buffer again(from, from + static_cast<std::ptrdiff_t>(length));
            input.insert(from, again.begin(), again.end());
            break;
        }
        default: {
            const Buffer& other = others[below(others.size())];
            const std::size_t cut = below(other.size());
            input.resize(at);
            input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(cut), other.end());
        }
    }
    if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
}

}  // namespace

int main(int argc, char** argv) {
    std::uint64_t mutations = 0;
    std::uint64_t seed = 1;
    crash_file = "crash-" + files::path(argv[0]).filename().string();
    std::vector<files::path> paths;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument(argv[i]);
        const auto value = [&](std::string_view option) {
            return std::string(argument.substr(option.size()));
        };
        if (argument.starts_with("--mutations=")) {
            mutations = std::stoull(value("--mutations="));
        } else if (argument.starts_with("--seed=")) {
            seed = std::stoull(value("--seed="));
        } else if (argument.starts_with("--crash=")) {
            crash_file = value("--crash=");
        } else if (argument.starts_with("--write-seeds=")) {
            const files::path folder = value("--write-seeds=");
            files::create_directories(folder);
            for (const auto& [name, bytes] : fuzz::seeds()) {
                std::ofstream file(folder / name, std::ios::binary);
                file.write(reinterpret_cast<const char*>(bytes.data()),
                           static_cast<std::streamsize>(bytes.size()));
            }
            return 0;
        } else {
            paths.emplace_back(argument);
        }
    }
    for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM})
        std::signal(number, on_death);
    const std::vector<Buffer> inputs = read_all(paths);
    for (const auto& input : inputs) {
        ::alarm(60);  // a target that hangs has failed
        run(input);
    }
    std::mt19937_64 random(seed);
    for (std::uint64_t i = 0; i < mutations && !inputs.empty(); ++i) {
        ::alarm(60);
        Buffer input = inputs[random() % inputs.size()];
        for (auto left = random() % 5 + 1; left > 0; --left) mutate(input, inputs, random);
        run(input);
    }
    std::printf("%zu files, %llu mutations\n", inputs.size(), static_cast<unsigned long long>(mutations));
    return 0;
}
