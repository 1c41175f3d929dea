// Python's keys and buffers as the client takes them. Everything is copied or held for the length of a call,
// so that the GIL may be released meanwhile and the caller may change its lists.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/staging.h"
#include "client/core/get_batch.h"
#include "client/transfer.h"

namespace mooncake::bindings {

namespace nb = nanobind;

// A list or tuple; a lone str or bytes is refused, because its letters would pass for keys.
class FastSequence {
  public:
    FastSequence(nb::handle sequence, const char* what);
    std::size_t size() const { return static_cast<std::size_t>(PySequence_Fast_GET_SIZE(items_.ptr())); }
    nb::handle operator[](std::size_t i) const {
        return PySequence_Fast_GET_ITEM(items_.ptr(), static_cast<Py_ssize_t>(i));
    }

  private:
    nb::object items_;
};

// The bytes of keys: str is its UTF-8, bytes are themselves, int >= 0 its decimal digits. Another type, a
// bool, a negative int or a str without UTF-8 raises, naming the index; a key of a length that no key has is
// packed as it is, and answered INVALID_KEY alone.
class PackedKeys {
  public:
    explicit PackedKeys(nb::handle keys);
    std::span<const std::string_view> views() const { return views_; }
    std::size_t size() const { return views_.size(); }

  private:
    void append(nb::handle key, std::size_t index);

    std::string bytes_;
    std::vector<std::size_t> ends_;
    std::vector<std::string_view> views_;
};

// Buffers exported by Python objects, held until destroyed (with the GIL).
class HeldBuffers {
  public:
    HeldBuffers() = default;
    ~HeldBuffers();
    HeldBuffers(const HeldBuffers&) = delete;
    HeldBuffers& operator=(const HeldBuffers&) = delete;
    HeldBuffers(HeldBuffers&& other) noexcept : held_(std::exchange(other.held_, {})) {}

    void reserve(std::size_t count) { held_.reserve(count); }
    // An object with contiguous bytes, or a pair (address, length) that the caller keeps valid.
    iovec add(nb::handle object, bool writable, const char* what, std::size_t index);
    // A target: only an object, and none that holds references to others, which bytes would overwrite.
    iovec add_target(nb::handle object, std::size_t index);

  private:
    std::vector<Py_buffer> held_;
};

// The memory of a batch, packed before the call: what a thousand Python objects cost is paid in one turn of
// native code. Holds the objects' buffers, but nothing that an address stands for.
class PackedMemory {
  public:
    // Plain bytes to be put: bytes, bytearray, memoryview. Others (arrays, tensors) may have a dtype and
    // shape to be told too.
    static PackedMemory of_values(nb::handle values);
    // Memory to be filled: whatever gives its bytes, in order and writable, and holds no Python objects.
    static PackedMemory of_targets(nb::handle targets);
    // One address > 0 and one size > 0 each, as ints; the caller keeps them valid.
    static PackedMemory of_addresses(nb::handle addresses, nb::handle sizes);
    // The same with several each, which make up one value: without empty ones, neighbours in memory joined.
    static PackedMemory of_pieces(nb::handle all_addresses, nb::handle all_sizes);

    std::size_t size() const { return ends_.empty() ? pieces_.size() : ends_.size(); }
    std::span<const iovec> operator[](std::size_t index) const {
        if (ends_.empty()) return {&pieces_[index], 1};
        const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
        return std::span(pieces_).subspan(begin, ends_[index] - begin);
    }
    bool is_writable() const { return is_writable_; }

  private:
    HeldBuffers buffers_;
    std::vector<iovec> pieces_;
    std::vector<std::size_t> ends_;  // of each entry's pieces; empty: one each
    bool is_writable_ = false;
};

// Values to be put: each a buffer, a pair (address, length), or a list of those; or all of them packed.
class PutValues {
  public:
    explicit PutValues(nb::handle values);
    std::span<const client::Value> values() const { return values_; }

  private:
    nb::object packed_;  // whose pieces these are, if they came so
    HeldBuffers buffers_;
    std::vector<iovec> pieces_;
    std::vector<client::Value> values_;
};

// Targets to be filled: each a writable buffer, a pair (address, length), or None for a key that is not
// wanted; or all of them packed.
class GetTargets {
  public:
    explicit GetTargets(nb::handle targets);
    std::span<const client::Target> targets() const { return targets_; }
    // Without the GIL, after the read: copies what was read for targets of several pieces over these.
    void spread(std::span<const client::GetResult> results) const;

  private:
    void add(const iovec& piece);
    void add_pieces(const PackedMemory& packed);

    nb::object packed_;
    const PackedMemory* spread_over_ = nullptr;
    std::optional<Staging> staging_;  // of the targets of several pieces
    HeldBuffers buffers_;
    std::vector<client::Target> targets_;
};

void check_count(const char* what, std::size_t count, std::size_t keys);

}  // namespace mooncake::bindings
