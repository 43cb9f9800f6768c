// SPDX-License-Identifier: Apache-2.0
#include "base/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <rondo/error.h>

namespace rondo::base {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr unsigned no_execution = 8;  // MFD_NOEXEC_SEAL, of Linux 6.3
constexpr int fixed_size = F_SEAL_SHRINK | F_SEAL_GROW;

[[noreturn]] void fail(const char* call, std::size_t bytes) {
  const int error = errno;
  throw Error(Errc::system,
              fmt::format("{} of {} bytes of shared memory: {}{}", call, bytes,
                          std::generic_category().message(error),
                          error == EMFILE ? " (raise the limit of open files, ulimit -n)" : ""));
}

// Reserves address space that begins at a multiple of a huge page.
std::byte* reserve_aligned(std::size_t bytes) noexcept {
  const std::size_t more = bytes + huge_page;
  if (more < bytes) return nullptr;
  void* const found =
      ::mmap(nullptr, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(found);
  const std::size_t before =
      (huge_page - reinterpret_cast<std::uintptr_t>(begin) % huge_page) % huge_page;
  const std::size_t page = page_bytes(), used = (before + bytes + page - 1) / page * page;
  if (before != 0) ::munmap(begin, before);
  if (used < more) ::munmap(begin + used, more - used);
  return begin + before;
}

}  // namespace

std::size_t page_bytes() noexcept {
  return static_cast<std::size_t>(::getpagesize());
}

namespace {

FileDescriptor make_memory(std::size_t bytes, int seals) {
  // Some systems refuse memory that might be executed, so this asks for memory that cannot be.
  // Older kernels do not know the flag.
  FileDescriptor memory(::memfd_create("rondo", MFD_CLOEXEC | MFD_ALLOW_SEALING | no_execution));
  if (!memory && errno == EINVAL)
    memory = FileDescriptor(::memfd_create("rondo", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) fail("memfd_create", bytes);
  grow_memory(memory.get(), bytes);
  if (::fcntl(memory.get(), F_ADD_SEALS, seals) != 0) fail("F_ADD_SEALS", bytes);
  return memory;
}

}  // namespace

FileDescriptor make_shared_memory(std::size_t bytes) {
  return make_memory(bytes, fixed_size);
}

FileDescriptor make_growing_memory() {
  return make_memory(0, F_SEAL_SHRINK);
}

bool fits_file_limit(std::size_t bytes) noexcept {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
         bytes <= limit.rlim_cur;
}

void grow_memory(int descriptor, std::size_t bytes) {
  if (!fits_file_limit(bytes))
    throw Error(
        Errc::system,
        fmt::format("shared memory needs {} bytes, more than the limit of file sizes allows: "
                    "raise it (ulimit -f)",
                    bytes));
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) fail("ftruncate", bytes);
}

void forbid_writing(int descriptor) noexcept {
#ifdef F_SEAL_FUTURE_WRITE
  ::fcntl(descriptor, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
#else
  (void)descriptor;
#endif
}

namespace {

std::string defect_of_memory(int descriptor, std::size_t bytes, int wanted_seals) {
  struct stat status {};
  struct statfs system {};
  if (::fstat(descriptor, &status) != 0 || ::fstatfs(descriptor, &system) != 0)
    return fmt::format("fstat: {}", std::generic_category().message(errno));
  // On other file systems, hugetlbfs among them, a page can be missing when it is touched.
  if (!S_ISREG(status.st_mode) || system.f_type != TMPFS_MAGIC) return "it is not shared memory";
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (wanted_seals == fixed_size ? size != bytes : size < bytes)
    return fmt::format("it has {} bytes instead of {}", status.st_size, bytes);
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & wanted_seals) != wanted_seals) return "its size is not sealed";
  return {};
}

}  // namespace

std::string defect_of_memory(int descriptor, std::size_t bytes) {
  return defect_of_memory(descriptor, bytes, fixed_size);
}

std::string defect_of_growing_memory(int descriptor, std::size_t bytes) {
  return defect_of_memory(descriptor, bytes, F_SEAL_SHRINK);
}

Mapping::Mapping(int descriptor, std::size_t bytes, Access access, std::size_t offset) {
  const int protection = access == Access::write ? PROT_READ | PROT_WRITE : PROT_READ;
  // Small mappings, and those that are only read, gain nothing from huge pages.
  std::byte* const wanted =
      bytes >= huge_page && access == Access::write ? reserve_aligned(bytes) : nullptr;
  void* const data =
      ::mmap(wanted, bytes, protection, MAP_SHARED | (wanted != nullptr ? MAP_FIXED : 0),
             descriptor, static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    const int error = errno;
    if (wanted != nullptr) ::munmap(wanted, bytes);
    errno = error;
    fail("mmap", bytes);
  }
  if (wanted != nullptr) ::madvise(data, bytes, MADV_HUGEPAGE);  // where the system allows it
  bytes_ = {static_cast<std::byte*>(data), bytes};
}

Mapping::Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this == &other) return *this;
  if (bytes_.data() != nullptr) ::munmap(bytes_.data(), bytes_.size());
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

Mapping::~Mapping() {
  if (bytes_.data() != nullptr) ::munmap(bytes_.data(), bytes_.size());
}

void Mapping::hide_from_children() noexcept {
  ::madvise(bytes_.data(), bytes_.size(), MADV_DONTFORK);
}

void Mapping::discard(std::size_t offset, std::size_t bytes) noexcept {
  ::madvise(bytes_.data() + offset, bytes, MADV_REMOVE);
}

}  // namespace rondo::base
