// SPDX-License-Identifier: Apache-2.0
//
// Messages between memory from Communicator::allocate, which ranks of a host read where it lies.
#include <algorithm>
#include <span>

#include "catch.h"
#include "point/messages.h"

namespace rondo::testing {
namespace {

std::span<std::uint8_t> memory_bytes(const Memory& memory) {
  return {static_cast<std::uint8_t*>(memory.data()), memory.bytes()};
}

Buffer bytes_buffer(std::span<std::uint8_t> bytes) {
  return {bytes.data(), bytes.size(), DType::u8};
}

TEST_CASE("messages from allocated memory arrive, and it may change when the send is done") {
  const int size = GENERATE(2, 3);
  CHECK_NOTHROW(
      run_communicators(point_setup(Over::shm, size), "allocated", [=](Communicator& c, int rank) {
        const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
        const Memory from = c.allocate(4'000'000), to = c.allocate(4'000'000);
        std::vector<std::uint8_t> ordinary(4'000'000);
        const std::size_t sizes[] = {65'536, 65'537, 262'144, 524'288, 524'289, 3'000'001};
        std::uint64_t number = 0;
        for (int round = 0; round < 5; ++round)
          for (const std::size_t bytes : sizes) {
            // At another place each time; every third message comes from ordinary memory, and every
            // second goes there.
            const std::size_t offset = ++number * 4'001 % 900'000;
            const std::span memory = number % 3 == 0 ? std::span(ordinary) : memory_bytes(from);
            const std::span out = memory.subspan(offset, bytes);
            std::vector<std::uint8_t> there(bytes);
            const std::span in =
                number % 2 == 0 ? std::span(there) : memory_bytes(to).subspan(offset, bytes);
            std::ranges::copy(content(rank, next, number, bytes), out.begin());
            Work receiving = c.receive(bytes_buffer(in), previous);
            c.send(bytes_buffer(out), next).wait();
            std::ranges::fill(out, std::uint8_t{0x77});
            receiving.wait();
            expect(std::ranges::equal(in, content(previous, rank, number, bytes)), "content");
          }
      }));
}

}  // namespace
}  // namespace rondo::testing
