// SPDX-License-Identifier: Apache-2.0
//
// The file, little endian:
//   file    = magic version crc header_bytes header data
//   magic   = "RONDOTRN"
//   version = u32               1
//   crc     = u32               CRC-32 of all that follows
//   header_bytes = u64
//   header  = JSON              {"options": {"--seed": "1", ...}, "progress": {...},
//                                "tensors": [{"name", "type", "shape"}, ...]}
//   data    = the elements of the tensors in this order, nothing between them
#include "examples/train/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>

#include "examples/train/crc32.h"

namespace train {
namespace {

using nlohmann::json;

constexpr std::string_view magic = "RONDOTRN";
constexpr std::uint32_t version = 1;
constexpr std::size_t fixed_bytes = 8 + 4 + 4 + 8;
constexpr std::size_t most_header_bytes = std::size_t{1} << 20;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
T get(std::string_view in, std::size_t at) {
  T value;
  std::memcpy(&value, in.data() + at, sizeof value);
  return value;
}

std::size_t bytes_of(const rondo::Parameter& tensor) {
  return rondo::element_count(tensor) * rondo::size_of(tensor.type);
}

std::size_t bytes_of(std::span<const rondo::Parameter> tensors) {
  std::size_t bytes = 0;
  for (const rondo::Parameter& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}

json describe(std::span<const rondo::Parameter> tensors) {
  json all = json::array();
  for (const rondo::Parameter& tensor : tensors)
    all.push_back(
        {{"name", tensor.name}, {"type", rondo::name_of(tensor.type)}, {"shape", tensor.shape}});
  return all;
}

json describe(const Identity& identity) {
  json all = json::object();
  for (const auto& [name, value] : identity) all[name] = value;
  return all;
}

json describe(const Progress& progress) {
  return {{"step", progress.step},
          {"epoch", progress.epoch},
          {"taken", progress.taken},
          {"epoch_sums", progress.epoch_sums},
          {"norm_batches", progress.norm_batches}};
}

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw CheckpointError(fmt::format("checkpoint '{}': {}", path, why));
}

std::string errno_text() {
  return std::generic_category().message(errno);
}

// Everything after the CRC.
std::string body_of(const Identity& identity, const Progress& progress,
                    std::span<const rondo::Parameter> tensors) {
  const std::string header = json{
      {"options", describe(identity)},
      {"progress", describe(progress)},
      {"tensors",
       describe(tensors)}}.dump();
  std::string body;
  body.reserve(8 + header.size() + bytes_of(tensors));
  put(body, static_cast<std::uint64_t>(header.size()));
  body += header;
  for (const rondo::Parameter& tensor : tensors)
    body.append(static_cast<const char*>(tensor.value), bytes_of(tensor));
  return body;
}

// Owns a descriptor.
class File {
 public:
  explicit File(const std::string& path)
      : descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  // Writes all bytes and syncs them to disk. Returns false, with errno set, on failure.
  bool write(std::string_view bytes) {
    while (descriptor_ >= 0 && !bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno != EINTR) return false;
      if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return descriptor_ >= 0 && ::fsync(descriptor_) == 0;
  }

 private:
  int descriptor_;
};

std::string read_file(const std::string& path, std::size_t most) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path, fmt::format("it cannot be opened: {}", errno_text()));
  std::string bytes(most + 1, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (in.bad()) fail(path, "it cannot be read");
  bytes.resize(static_cast<std::size_t>(in.gcount()));
  return bytes;
}

// Checks magic, version and CRC of the file, and returns its header.
json checked_header(const std::string& path, std::string_view file) {
  if (file.size() < fixed_bytes || file.substr(0, magic.size()) != magic)
    fail(path, "it is no checkpoint of this program");
  const auto its_version = get<std::uint32_t>(file, 8);
  if (its_version != version)
    fail(path, fmt::format("it is of version {}, and this program reads version {}", its_version,
                           version));
  if (crc32(file.substr(16)) != get<std::uint32_t>(file, 12))
    fail(path, "it is damaged: its CRC does not fit; take an older one");
  const auto header_bytes = get<std::uint64_t>(file, 16);
  if (header_bytes > file.size() - fixed_bytes) fail(path, "its header does not end");
  json header = json::parse(file.substr(fixed_bytes, header_bytes), nullptr, false);
  if (!header.is_object() || !header.contains("options") || !header.contains("progress") ||
      !header.contains("tensors"))
    fail(path, "its header is not understood");
  return header;
}

void compare(const std::string& path, const json& header, const Identity& identity,
             std::span<const rondo::Parameter> tensors) {
  const json& options = header["options"];
  for (const auto& [name, value] : identity) {
    const auto found = options.find(name);
    if (found == options.end() || *found != value)
      fail(path, fmt::format("it is from a run with {} {}, and this run has {} {}", name,
                             found == options.end() ? "nothing" : found->get<std::string>(), name,
                             value));
  }
  const json& theirs = header["tensors"];
  const json ours = describe(tensors);
  for (std::size_t i = 0; i < ours.size() || i < theirs.size(); ++i)
    if (i >= theirs.size() || i >= ours.size() || ours[i] != theirs[i])
      fail(path, fmt::format("tensor {} is {} there and {} here", i,
                             i < theirs.size() ? theirs[i].dump() : "missing",
                             i < ours.size() ? ours[i].dump() : "missing"));
}

}  // namespace

void write_checkpoint(const std::string& path, const Identity& identity, const Progress& progress,
                      std::span<const rondo::Parameter> tensors) {
  const std::string body = body_of(identity, progress, tensors);
  std::string file(magic);
  put(file, version);
  put(file, crc32(body));
  file += body;
  const std::string fresh = path + checkpoint_suffix;
  if (!File(fresh).write(file)) fail(fresh, fmt::format("it cannot be written: {}", errno_text()));
  if (std::rename(fresh.c_str(), path.c_str()) != 0)
    fail(path, fmt::format("it cannot take its name: {}", errno_text()));
}

Progress read_checkpoint(const std::string& path, const Identity& identity,
                         std::span<const rondo::Parameter> tensors) {
  const std::string file = read_file(path, fixed_bytes + most_header_bytes + bytes_of(tensors));
  try {
    const json header = checked_header(path, file);
    compare(path, header, identity, tensors);
    const auto begin = fixed_bytes + get<std::uint64_t>(file, 16);
    if (file.size() - begin != bytes_of(tensors))
      fail(path, fmt::format("it has {} bytes of values instead of {}", file.size() - begin,
                             bytes_of(tensors)));
    const json& told = header["progress"];
    Progress progress;
    told.at("step").get_to(progress.step);
    told.at("epoch").get_to(progress.epoch);
    told.at("taken").get_to(progress.taken);
    told.at("epoch_sums").get_to(progress.epoch_sums);
    told.at("norm_batches").get_to(progress.norm_batches);
    std::size_t at = begin;
    for (const rondo::Parameter& tensor : tensors) {
      std::memcpy(tensor.value, file.data() + at, bytes_of(tensor));
      at += bytes_of(tensor);
    }
    return progress;
  } catch (const json::exception& error) {
    fail(path, fmt::format("its header is not understood: {}", error.what()));
  }
}

}  // namespace train
