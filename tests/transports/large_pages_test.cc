// SPDX-License-Identifier: Apache-2.0
//
// Shared memory on a kernel whose pages have 64 KiB, as on many hosts with aarch64. This program
// stands in for such a kernel: it tells that size, and gives memory back in whole pages. It also
// runs other tests of shared memory.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "catch.h"
#include "transports/host/exports.h"

namespace {

constexpr std::size_t page = std::size_t{64} << 10;

}  // namespace

extern "C" int getpagesize() noexcept {
  return static_cast<int>(page);
}

extern "C" int madvise(void* address, std::size_t bytes, int advice) noexcept {
  if (advice == MADV_REMOVE) {
    if (reinterpret_cast<std::uintptr_t>(address) % page != 0) {
      errno = EINVAL;
      return -1;
    }
    bytes = (bytes + page - 1) / page * page;
  }
  return static_cast<int>(::syscall(SYS_madvise, address, bytes, advice));
}

namespace rondo::host {
namespace {

bool holds(const transports::Allocation& memory, std::byte value) {
  return std::ranges::all_of(memory.memory(), [=](std::byte byte) { return byte == value; });
}

}  // namespace

TEST_CASE("pages of 64 KiB: memory that is freed leaves its neighbours alone, and returns zeroed") {
  constexpr std::size_t sizes[] = {4096, 1, 5000, page, page + 1, 3 * page - 4096};
  std::atomic<std::uint32_t> opened{0};
  const auto exports = std::make_shared<Exports>(opened, std::span<const ExportPeer>());
  std::vector<std::unique_ptr<transports::Allocation>> kept;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < 24; ++i) {
      if (i < kept.size() && kept[i]) continue;
      kept.resize(std::max(kept.size(), i + 1));
      kept[i] = Exports::allocate(exports, sizes[i % std::size(sizes)]);
      INFO("round " << round << ", " << sizes[i % std::size(sizes)] << " bytes");
      REQUIRE(holds(*kept[i], std::byte{0}));
      std::ranges::fill(kept[i]->memory(), static_cast<std::byte>(i + 1));
    }
    for (std::size_t i = static_cast<std::size_t>(round) % 2; i < kept.size(); i += 2)
      kept[i].reset();
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (kept[i]) REQUIRE(holds(*kept[i], static_cast<std::byte>(i + 1)));
  }
}

}  // namespace rondo::host
