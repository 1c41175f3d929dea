#include "bindings/client_arguments.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "net/iovecs.h"
#include "wire/limits.h"

namespace mooncake::bindings {

namespace {

std::string kind_of(nb::handle object) { return Py_TYPE(object.ptr())->tp_name; }

std::string at(const char* what, std::size_t index) {
    return std::string(what) + "[" + std::to_string(index) + "]";
}

[[noreturn]] void raise_type(const std::string& text) { throw nb::type_error(text.c_str()); }
[[noreturn]] void raise_value(const std::string& text) { throw nb::value_error(text.c_str()); }

// What Python said, with the argument's name before it.
[[noreturn]] void raise_buffer(const std::string& where, nb::handle object) {
    nb::python_error cause;
    raise_type(where + " (" + kind_of(object) + ") does not give its bytes: " + cause.what());
}

}  // namespace

void check_count(const char* what, std::size_t count, std::size_t keys) {
    if (count == keys) return;
    raise_value(std::to_string(keys) + " keys but " + std::to_string(count) + " " + what);
}

FastSequence::FastSequence(nb::handle sequence, const char* what) {
    if (PyUnicode_Check(sequence.ptr()) || PyBytes_Check(sequence.ptr())) {
        raise_type(std::string(what) + " must be a list, not one " + kind_of(sequence));
    }
    items_ = nb::steal(PySequence_Fast(sequence.ptr(), ""));
    if (!items_.is_valid()) {
        PyErr_Clear();
        raise_type(std::string(what) + " must be a list, not " + kind_of(sequence));
    }
}

PackedKeys::PackedKeys(nb::handle keys) {
    const FastSequence sequence(keys, "keys");
    const auto count = sequence.size();
    ends_.reserve(count);
    bytes_.reserve(count * 40);
    for (std::size_t i = 0; i < count; ++i) append(sequence[i], i);
    views_.reserve(count);
    std::size_t start = 0;
    for (const auto end : ends_) {
        views_.push_back(std::string_view(bytes_).substr(start, end - start));
        start = end;
    }
}

void PackedKeys::append(nb::handle key, std::size_t index) {
    PyObject* object = key.ptr();
    if (PyUnicode_Check(object)) {
        Py_ssize_t size = 0;
        const char* text = PyUnicode_AsUTF8AndSize(object, &size);
        if (text == nullptr) {
            PyErr_Clear();
            raise_value(at("keys", index) + " has no UTF-8 form (a lone surrogate)");
        }
        bytes_.append(text, static_cast<std::size_t>(size));
    } else if (PyBytes_Check(object)) {
        bytes_.append(PyBytes_AS_STRING(object), static_cast<std::size_t>(PyBytes_GET_SIZE(object)));
    } else if (PyLong_Check(object) && !PyBool_Check(object)) {
        int overflow = 0;
        const auto number = PyLong_AsLongLongAndOverflow(object, &overflow);
        if (number < 0 && overflow == 0) {
            raise_value(at("keys", index) + " is " + std::to_string(number) + "; an int key is >= 0");
        }
        if (overflow < 0) raise_value(at("keys", index) + " is negative; an int key is >= 0");
        if (overflow == 0) {
            char digits[24];
            const auto end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
            bytes_.append(digits, end);
        } else {
            // Python refuses to print ints of more than 4,300 digits: no key either, so an empty one stands
            // for it.
            const auto text = nb::steal(PyNumber_ToBase(object, 10));
            Py_ssize_t size = 0;
            const char* digits = text.is_valid() ? PyUnicode_AsUTF8AndSize(text.ptr(), &size) : nullptr;
            if (digits == nullptr) PyErr_Clear();
            bytes_.append(digits == nullptr ? "" : digits, static_cast<std::size_t>(size));
        }
    } else {
        raise_type(at("keys", index) + " must be str, bytes or int, not " + kind_of(key));
    }
    ends_.push_back(bytes_.size());
}

HeldBuffers::~HeldBuffers() {
    for (auto& buffer : held_) PyBuffer_Release(&buffer);
}

iovec HeldBuffers::add(nb::handle object, bool writable, const char* what, std::size_t index) {
    if (PyTuple_Check(object.ptr())) {
        if (PyTuple_GET_SIZE(object.ptr()) != 2) raise_value(at(what, index) + " must be (address, length)");
        void* address = PyLong_AsVoidPtr(PyTuple_GET_ITEM(object.ptr(), 0));
        const auto length = PyLong_AsSsize_t(PyTuple_GET_ITEM(object.ptr(), 1));
        if (PyErr_Occurred() != nullptr) {
            PyErr_Clear();
            raise_type(at(what, index) + " must be (address, length), two ints");
        }
        if (length < 0)
            raise_value(at(what, index) + " has length " + std::to_string(length) + "; it must be >= 0");
        if (address == nullptr && length > 0) raise_value(at(what, index) + " has address 0");
        return {address, static_cast<std::size_t>(length)};
    }
    Py_buffer buffer;
    if (PyObject_GetBuffer(object.ptr(), &buffer, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
        raise_buffer(at(what, index), object);
    }
    held_.push_back(buffer);
    return {buffer.buf, static_cast<std::size_t>(buffer.len)};
}

iovec HeldBuffers::add_target(nb::handle object, std::size_t index) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_WRITABLE | PyBUF_ND | PyBUF_FORMAT) != 0) {
        raise_buffer(at("targets", index), object);
    }
    held_.push_back(buffer);
    if (buffer.format != nullptr && std::strchr(buffer.format, 'O') != nullptr) {
        raise_type(at("targets", index) + " holds Python objects, which have no writable bytes");
    }
    return {buffer.buf, static_cast<std::size_t>(buffer.len)};
}

PackedMemory PackedMemory::of_values(nb::handle values) {
    const FastSequence sequence(values, "values");
    PackedMemory packed;
    packed.buffers_.reserve(sequence.size());
    packed.pieces_.reserve(sequence.size());
    for (std::size_t i = 0; i < sequence.size(); ++i) {
        PyObject* value = sequence[i].ptr();
        if (!PyBytes_CheckExact(value) && !PyByteArray_CheckExact(value) && !PyMemoryView_Check(value)) {
            raise_type(at("values", i) + " is no plain bytes but " + kind_of(value));
        }
        packed.pieces_.push_back(packed.buffers_.add(value, false, "values", i));
    }
    return packed;
}

PackedMemory PackedMemory::of_targets(nb::handle targets) {
    const FastSequence sequence(targets, "targets");
    PackedMemory packed;
    packed.is_writable_ = true;
    packed.buffers_.reserve(sequence.size());
    packed.pieces_.reserve(sequence.size());
    for (std::size_t i = 0; i < sequence.size(); ++i) {
        packed.pieces_.push_back(packed.buffers_.add_target(sequence[i], i));
    }
    return packed;
}

namespace {

// Of two lists of ints; throws where one of the two is no memory. An empty piece is memory of no bytes.
iovec address_and_size(nb::handle address, nb::handle size, const char* what, std::size_t index) {
    const bool are_ints = PyLong_CheckExact(address.ptr()) && PyLong_CheckExact(size.ptr());
    const auto at_address = are_ints ? PyLong_AsSsize_t(address.ptr()) : 0;
    const auto length = are_ints ? PyLong_AsSsize_t(size.ptr()) : -1;
    if (length < 0 || (at_address <= 0 && length > 0)) {
        PyErr_Clear();
        raise_value(at(what, index) + " and its size must be ints above 0");
    }
    return {reinterpret_cast<void*>(at_address), static_cast<std::size_t>(length)};
}

void check_lengths(const FastSequence& addresses, const FastSequence& sizes) {
    if (addresses.size() == sizes.size()) return;
    raise_value(std::to_string(addresses.size()) + " addresses but " + std::to_string(sizes.size()) +
                " sizes");
}

}  // namespace

PackedMemory PackedMemory::of_addresses(nb::handle addresses, nb::handle sizes) {
    const FastSequence from(addresses, "addresses");
    const FastSequence lengths(sizes, "sizes");
    check_lengths(from, lengths);
    PackedMemory packed;
    packed.is_writable_ = true;
    packed.pieces_.reserve(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
        packed.pieces_.push_back(address_and_size(from[i], lengths[i], "addresses", i));
        if (packed.pieces_.back().iov_len == 0) raise_value(at("sizes", i) + " is 0");
    }
    return packed;
}

PackedMemory PackedMemory::of_pieces(nb::handle all_addresses, nb::handle all_sizes) {
    const FastSequence from(all_addresses, "all_addresses");
    const FastSequence lengths(all_sizes, "all_sizes");
    check_lengths(from, lengths);
    PackedMemory packed;
    packed.is_writable_ = true;
    packed.ends_.reserve(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
        const FastSequence addresses(from[i], "all_addresses");
        const FastSequence sizes(lengths[i], "all_sizes");
        check_lengths(addresses, sizes);
        const std::size_t first = packed.pieces_.size();
        for (std::size_t j = 0; j < addresses.size(); ++j) {
            const auto piece = address_and_size(addresses[j], sizes[j], "all_addresses", i);
            if (piece.iov_len == 0) continue;
            auto& pieces = packed.pieces_;
            if (pieces.size() > first &&
                static_cast<std::uint8_t*>(pieces.back().iov_base) + pieces.back().iov_len ==
                    piece.iov_base) {
                pieces.back().iov_len += piece.iov_len;
            } else {
                pieces.push_back(piece);
            }
        }
        if (packed.pieces_.size() == first) raise_value(at("all_sizes", i) + " has no memory");
        packed.ends_.push_back(packed.pieces_.size());
    }
    return packed;
}

PutValues::PutValues(nb::handle values) {
    if (nb::isinstance<PackedMemory>(values)) {
        packed_ = nb::borrow(values);
        const auto& packed = nb::cast<const PackedMemory&>(values);
        values_.reserve(packed.size());
        for (std::size_t i = 0; i < packed.size(); ++i) {
            const auto pieces = packed[i];
            values_.push_back({pieces.data(), pieces.size(), net::total_bytes(pieces)});
        }
        return;
    }
    const FastSequence sequence(values, "values");
    std::vector<std::size_t> ends;
    for (std::size_t i = 0; i < sequence.size(); ++i) {
        const auto value = sequence[i];
        if (PyList_Check(value.ptr())) {
            const FastSequence parts(value, "values");
            for (std::size_t j = 0; j < parts.size(); ++j) {
                pieces_.push_back(buffers_.add(parts[j], false, "values", i));
            }
        } else {
            pieces_.push_back(buffers_.add(value, false, "values", i));
        }
        ends.push_back(pieces_.size());
    }
    std::size_t start = 0;
    for (const auto end : ends) {
        client::Value value{pieces_.data() + start, end - start, 0};
        for (; start < end; ++start) value.size += pieces_[start].iov_len;
        values_.push_back(value);
    }
}

GetTargets::GetTargets(nb::handle targets) {
    if (nb::isinstance<PackedMemory>(targets)) {
        packed_ = nb::borrow(targets);
        const auto& packed = nb::cast<const PackedMemory&>(targets);
        if (!packed.is_writable()) raise_type("targets were packed as values, which are only read");
        add_pieces(packed);
        return;
    }
    const FastSequence sequence(targets, "targets");
    for (std::size_t i = 0; i < sequence.size(); ++i) {
        if (sequence[i].is_none()) {
            targets_.push_back({});
        } else {
            add(buffers_.add(sequence[i], true, "targets", i));
        }
    }
}

void GetTargets::add_pieces(const PackedMemory& packed) {
    std::size_t staged_bytes = 0;
    for (std::size_t i = 0; i < packed.size(); ++i) {
        if (packed[i].size() > 1) staged_bytes += net::total_bytes(packed[i]);
    }
    if (staged_bytes > 0) {
        staging_.emplace(staged_bytes);
        spread_over_ = &packed;
    }
    targets_.reserve(packed.size());
    std::uint8_t* next = staging_ ? staging_->data() : nullptr;
    for (std::size_t i = 0; i < packed.size(); ++i) {
        if (packed[i].size() == 1) {
            add(packed[i].front());
            continue;
        }
        targets_.push_back({next, net::total_bytes(packed[i])});
        next += targets_.back().capacity;
    }
}

void GetTargets::spread(std::span<const client::GetResult> results) const {
    if (spread_over_ == nullptr) return;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const auto pieces = (*spread_over_)[i];
        if (pieces.size() == 1 || !wire::ok(results[i].status)) continue;
        const std::uint8_t* from = targets_[i].data;
        std::size_t left = results[i].length;
        for (const auto& piece : pieces) {
            const std::size_t length = std::min(piece.iov_len, left);
            std::memcpy(piece.iov_base, from, length);
            from += length;
            left -= length;
        }
    }
}

// An empty target has an address all the same: without one the key would count as not wanted.
void GetTargets::add(const iovec& piece) {
    static std::uint8_t nowhere;
    auto* data = static_cast<std::uint8_t*>(piece.iov_base);
    targets_.push_back({data != nullptr ? data : &nowhere, piece.iov_len});
}

}  // namespace mooncake::bindings
