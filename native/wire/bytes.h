// Bounded reading and writing of little-endian bytes: the only way any part takes a frame apart or puts one
// together.
//
// A Reader never reads outside its span and fails for good at the first short read; check ok() (or
// finished()) once at the end. Hosts are little-endian (x86-64, aarch64).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace mooncake::wire {

static_assert(std::endian::native == std::endian::little);

using Bytes = std::span<const std::uint8_t>;
using Buffer = std::vector<std::uint8_t>;

inline std::string_view as_text(Bytes bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline Bytes as_bytes(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

class Reader {
  public:
    explicit Reader(Bytes bytes) : bytes_(bytes) {}

    // The next integer or packed struct; zero-initialised after a failure.
    template <class T>
    T get() {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        const Bytes piece = bytes(sizeof(T));
        if (piece.size() == sizeof(T)) std::memcpy(&value, piece.data(), sizeof(T));
        return value;
    }

    // The next n bytes, or an empty span and failure.
    Bytes bytes(std::size_t n) {
        if (!ok_ || n > remaining()) {
            ok_ = false;
            return {};
        }
        const Bytes piece = bytes_.subspan(position_, n);
        position_ += n;
        return piece;
    }

    // `count` packed values, or an empty vector and failure when there are fewer or more than max are
    // claimed.
    template <class T>
    std::vector<T> array(std::size_t count, std::size_t max) {
        static_assert(std::is_trivially_copyable_v<T>);
        if (count > max) ok_ = false;
        const Bytes piece = bytes(ok_ ? count * sizeof(T) : 0);
        std::vector<T> values(piece.size() / sizeof(T));
        if (!values.empty()) std::memcpy(values.data(), piece.data(), piece.size());
        return values;
    }

    // A u16 length and that many bytes, at most max of them.
    std::string_view text16(std::size_t max) {
        const auto length = get<std::uint16_t>();
        if (length > max) ok_ = false;
        return as_text(bytes(ok_ ? length : 0));
    }

    void fail() { ok_ = false; }
    bool ok() const { return ok_; }
    bool finished() const { return ok_ && position_ == bytes_.size(); }
    std::size_t remaining() const { return bytes_.size() - position_; }
    std::size_t position() const { return position_; }

  private:
    Bytes bytes_;
    std::size_t position_ = 0;
    bool ok_ = true;
};

class Writer {
  public:
    explicit Writer(Buffer& buffer) : buffer_(buffer) {}

    template <class T>
    void put(T value) {
        static_assert(std::is_trivially_copyable_v<T>);
        const auto* from = reinterpret_cast<const std::uint8_t*>(&value);
        buffer_.insert(buffer_.end(), from, from + sizeof(T));
    }
    void bytes(Bytes piece) { buffer_.insert(buffer_.end(), piece.begin(), piece.end()); }
    template <class T>
    void array(std::span<const T> values) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes({reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()});
    }
    void text16(std::string_view text) {
        put(static_cast<std::uint16_t>(text.size()));
        bytes(as_bytes(text));
    }
    // Overwrites what was written at `position` (for counts known only at the end).
    template <class T>
    void patch(std::size_t position, T value) {
        static_assert(std::is_trivially_copyable_v<T>);
        std::memcpy(buffer_.data() + position, &value, sizeof(T));
    }
    std::size_t size() const { return buffer_.size(); }

  private:
    Buffer& buffer_;
};

}  // namespace mooncake::wire
