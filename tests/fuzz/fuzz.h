// What the fuzz targets share: bytes taken apart into choices, and the requirement that fails a run.
//
// A target is one file *_fuzz.cc with LLVMFuzzerTestOneInput and fuzz::seeds(). It is built twice: with clang
// and libFuzzer (`make fuzz`), and with any compiler and replay_main.cc, which runs and mutates the files of
// corpus/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "wire/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

namespace wire = mooncake::wire;

// Inputs that reach what random bytes would not find: real frames, whole conversations. By file name.
std::vector<std::pair<std::string, wire::Buffer>> seeds();

[[noreturn]] inline void fail(const char* file, int line, const char* what) {
    std::fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
    std::fflush(stderr);
    std::abort();
}

// Takes an input apart. Beyond its end everything is zero, so that a truncated input is one too.
class Input {
  public:
    explicit Input(std::span<const std::uint8_t> bytes) : left_(bytes) {}

    bool empty() const { return left_.empty(); }
    template <class T>
    T get() {
        T value{};
        const auto piece = bytes(sizeof(T));
        if (!piece.empty()) std::memcpy(&value, piece.data(), piece.size());
        return value;
    }
    std::uint8_t u8() { return get<std::uint8_t>(); }
    std::uint16_t u16() { return get<std::uint16_t>(); }
    std::uint32_t u32() { return get<std::uint32_t>(); }
    std::uint64_t u64() { return get<std::uint64_t>(); }
    bool flag() { return (u8() & 1) != 0; }
    std::size_t below(std::size_t end) { return u8() % end; }  // at most 256
    // At most n.
    wire::Bytes bytes(std::size_t n) {
        const auto piece = left_.first(std::min(n, left_.size()));
        left_ = left_.subspan(piece.size());
        return piece;
    }
    // A u16 length and at most that many bytes.
    wire::Bytes chunk() { return bytes(u16()); }
    wire::Bytes rest() { return bytes(left_.size()); }

  private:
    std::span<const std::uint8_t> left_;
};

// Puts an input together: the inverse of Input, for seeds().
class Script {
  public:
    template <class T>
    Script& put(T value) {
        wire::Writer(buffer_).put(value);
        return *this;
    }
    Script& u8(std::size_t value) { return put(static_cast<std::uint8_t>(value)); }
    Script& u16(std::size_t value) { return put(static_cast<std::uint16_t>(value)); }
    Script& bytes(wire::Bytes piece) {
        wire::Writer(buffer_).bytes(piece);
        return *this;
    }
    Script& chunk(wire::Bytes piece) { return u16(piece.size()).bytes(piece); }
    operator wire::Buffer() const { return buffer_; }

  private:
    wire::Buffer buffer_;
};

template <class Encode>
wire::Buffer packed(Encode encode) {
    wire::Buffer buffer;
    wire::Writer writer(buffer);
    encode(writer);
    return buffer;
}

}  // namespace fuzz

#define REQUIRE(condition) ((condition) ? static_cast<void>(0) : fuzz::fail(__FILE__, __LINE__, #condition))
