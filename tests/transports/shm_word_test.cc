// SPDX-License-Identifier: Apache-2.0
//
// Ranks that all share memory sleep on words of it.

#include <rondo/error.h>

#include "catch.h"
#include "conformance.h"
#include "shm_impostor.h"
#include "transports/shm/bell.h"

namespace rondo::testing {
namespace {

std::vector<std::unique_ptr<transports::Transport>> word_transports(int size) {
  return shm_transports(size, [](shm::Options& options) { options.may_sleep_on_word = true; });
}

}  // namespace

TEST_CASE("a rank that sleeps on a word is woken by what it awaits, once for each sleep") {
  const auto transports = word_transports(3);
  base::WakeWord* const word = transports[2]->wake_source().word;
  REQUIRE(word != nullptr);
  CHECK(transports[2]->wake_source().descriptor == -1);
  const std::uint32_t before = word->load();
  transports[0]->windows()->notify();
  CHECK(word->load() == before);  // it does not sleep
  transports[2]->windows()->await(transports::wake_bit(1));
  CHECK(transports[2]->prepare_sleep());
  transports[0]->windows()->notify();
  CHECK(word->load() == before);  // it does not await rank 0
  transports[1]->windows()->notify();
  CHECK(word->load() == before + 1);
  transports[1]->windows()->notify();
  CHECK(word->load() == before + 1);
  CHECK(transports[0]->wake_source().word != word);
}

TEST_CASE("a rank has one descriptor for each peer where all sleep on words") {
  const std::ptrdiff_t before = open_descriptors();
  const auto transports = word_transports(4);
  CHECK(open_descriptors() == before + 4 * 3);
}

TEST_CASE("a rank that does not reach all others has an event and no word") {
  const auto transports = shm_transports(3, [](shm::Options& options) {
    options.may_sleep_on_word = true;
    if (options.rank == 2) options.host = "another host";
  });
  CHECK(transports[0]->wake_source().word == nullptr);
  CHECK(transports[0]->wake_source().descriptor >= 0);
  pollfd descriptor{transports[1]->wake_source().descriptor, POLLIN, 0};
  CHECK(transports[1]->prepare_sleep());
  transports[0]->windows()->notify();
  CHECK(::poll(&descriptor, 1, 0) == 1);
}

// With more than 16 peers there is an epoll for their sockets.
TEST_CASE("a rank that sleeps on a word notices the end of a peer, and memory of others") {
  const int size = GENERATE(3, 18);
  auto transports = word_transports(size);
  auto memory = transports[0]->allocate(1000);
  memory->memory()[3] = std::byte{5};
  // A rank sends its descriptor to a few others at a time.
  transports::WindowPlace place;
  for (int i = 0; i < size && place.generation == 0; ++i)
    place = find_everywhere(transports, 0, memory->memory().data(), 1000);
  REQUIRE(place.generation != 0);
  CHECK(transports[1]->windows()->map(0, place, 1000)[3] == std::byte{5});
  Node node(std::move(transports[1]));
  node.transport().link(2, transports::Lane::bulk);
  node.expect(2, transports::Lane::bulk, {1, 10, true, 1});
  transports[2].reset();
  const auto until = base::Clock::now() + patience;
  while (node.broken_links.empty() && base::Clock::now() < until) {
    const std::uint32_t seen = node.transport().wake_source().word->load();
    if (!node.turn() && node.transport().prepare_sleep())
      base::sleep_on(*node.transport().wake_source().word, seen, milliseconds{1});
  }
  REQUIRE(node.broken_links.size() == 1);
  CHECK(node.broken_links[0].code == Errc::peer_left);
}

TEST_CASE("a bell is an event or a page of sealed memory, and nothing else") {
  shm::Bell word(shm::Bell::Kind::word);
  shm::Bell theirs(base::FileDescriptor(::dup(word.descriptor())));
  REQUIRE(word.word() != nullptr);
  theirs.ring();
  CHECK(word.word()->load() == 1);
  word.close_offer();
  CHECK(word.descriptor() == -1);
  theirs.ring();
  CHECK(word.word()->load() == 2);
  shm::Bell event(shm::Bell::Kind::event);
  event.close_offer();
  CHECK(event.descriptor() >= 0);
  CHECK(event.word() == nullptr);
  const auto refused = [](base::FileDescriptor offered) {
    CHECK_THROWS_WITH(shm::Bell(std::move(offered)),
                      Catch::Contains("neither an event nor a page of memory"));
  };
  refused(memory_of(4096, F_SEAL_GROW));
  refused(memory_of(8192, F_SEAL_SHRINK | F_SEAL_GROW));
  refused(base::FileDescriptor(::open("/dev/null", O_RDWR | O_CLOEXEC)));
  // Memory that may not be written cannot be rung.
  base::FileDescriptor sealed = memory_of(4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  CHECK_THROWS_AS(shm::Bell(std::move(sealed)), Error);
}

}  // namespace rondo::testing
