// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <rondo/communicator.h>

#include "catch.h"
#include "lib/connect.h"
#include "ranks.h"
#include "support/wrapped_transport.h"
#include "transports/mem/mem.h"

namespace rondo::tests {

namespace {

// The memory that is registered with a transport now. It outlives the transport.
class Book {
 public:
  void add(std::span<std::byte> memory) {
    const std::lock_guard lock(mutex_);
    entries_.push_back(memory);
  }
  void remove(std::span<std::byte> memory) {
    const std::lock_guard lock(mutex_);
    const auto is_it = [&](std::span<std::byte> one) {
      return one.data() == memory.data() && one.size() == memory.size();
    };
    const auto found = std::ranges::find_if(entries_, is_it);
    if (found != entries_.end()) entries_.erase(found);
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }
  std::size_t count(const void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::ranges::count_if(
        entries_, [&](const auto& one) { return one.data() == data && one.size() == bytes; }));
  }

 private:
  std::mutex mutex_;
  std::vector<std::span<std::byte>> entries_;
};

// mem that notes registrations in a Book, if there is one, and reaches some of the ranks. With
// windows it also gives memory.
class Registrar final : public testing::WrappedTransport {
 public:
  // reached: a bit for each rank.
  Registrar(std::string_view name, std::unique_ptr<transports::Transport> inner,
            std::shared_ptr<Book> book, unsigned reached)
      : WrappedTransport(std::move(inner)),
        name_(name),
        book_(std::move(book)),
        reached_(reached) {}
  transports::Identity identity() const override {
    transports::Identity own = WrappedTransport::identity();
    own.name = name_;
    return own;
  }
  transports::Reach reach(int peer, std::span<const std::byte> address) const override {
    if ((reached_ >> peer & 1) == 0) return {{}, "not reached in this test"};
    return WrappedTransport::reach(peer, address);
  }
  std::unique_ptr<transports::Registration> register_memory(std::span<std::byte> memory) override {
    return book_ ? std::make_unique<Entry>(book_, memory) : nullptr;
  }

 private:
  class Entry final : public transports::Registration {
   public:
    Entry(std::shared_ptr<Book> book, std::span<std::byte> memory)
        : book_(std::move(book)), memory_(memory) {
      book_->add(memory_);
    }
    ~Entry() override { book_->remove(memory_); }

   private:
    std::shared_ptr<Book> book_;
    std::span<std::byte> memory_;
  };

  const std::string_view name_;
  std::shared_ptr<Book> book_;
  const unsigned reached_;
};

// Rank 0 of four. Each of two transports reaches some of the others from each rank, so all ranks
// keep both. The first one gives memory if `windows` is set.
struct Rank {
  explicit Rank(bool windows) : fabrics{fabric(windows), fabric(false)} {
    std::vector<std::future<Communicator>> others;
    for (int rank = 1; rank < size; ++rank)
      others.push_back(std::async(std::launch::async, [this, rank] { return connect(rank); }));
    communicator = connect(0);
    for (auto& other : others) peers.push_back(other.get());
  }
  Communicator connect(int rank) {
    Options options = with_deadline(milliseconds{20'000});
    options.deadline = milliseconds{20'000};
    options.rank = rank;
    options.size = size;
    options.store = &store;
    return lib::connect_with(options, [&](const rendezvous::Place&, const Options&) {
      lib::TransportList list;
      constexpr unsigned reached[2][size] = {{0b1010, 0b0001, 0b1000, 0b0101},
                                             {0b0100, 0b1100, 0b0011, 0b0010}};
      for (std::size_t i = 0; i < 2; ++i)
        list.push_back(std::make_unique<Registrar>(
            i == 0 ? "mem" : "other", fabrics[i]->endpoint(rank), rank == 0 ? books[i] : nullptr,
            reached[i][static_cast<std::size_t>(rank)]));
      return list;
    });
  }
  static std::unique_ptr<mem::MemFabric> fabric(bool windows) {
    mem::MemFaults faults;
    faults.windows = windows;
    return std::make_unique<mem::MemFabric>(size, faults);
  }
  bool both(std::size_t count, const void* data, std::size_t bytes) {
    return std::ranges::all_of(books,
                               [&](const auto& book) { return book->count(data, bytes) == count; });
  }
  std::size_t all() { return books[0]->count() + books[1]->count(); }

  static constexpr int size = 4;
  MapStore store;
  std::shared_ptr<Book> books[2] = {std::make_shared<Book>(), std::make_shared<Book>()};
  std::unique_ptr<mem::MemFabric> fabrics[2];
  std::optional<Communicator> communicator;
  std::vector<Communicator> peers;
};

}  // namespace

TEST_CASE("allocate registers with every transport in use for as long as the memory lives",
          "[registration]") {
  Rank rank(GENERATE(false, true));
  CHECK(rank.all() == 0);
  Memory memory = rank.communicator->allocate(5000);
  CHECK(rank.both(1, memory.data(), memory.bytes()));
  CHECK(rank.all() == 2);
  Memory moved = std::move(memory);
  CHECK(rank.both(1, moved.data(), moved.bytes()));
  rank.communicator.reset();
  CHECK(rank.all() == 2);
  moved = Memory();
  CHECK(rank.all() == 0);
}

TEST_CASE("register_memory registers with every transport in use until its object ends",
          "[registration]") {
  Rank rank(false);
  std::vector<double> values(100), others(50);
  const std::size_t bytes = values.size() * sizeof(double);
  Registration first = rank.communicator->register_memory(values.data(), bytes);
  CHECK(first.data() == values.data());
  CHECK(first.bytes() == bytes);
  CHECK(rank.both(1, values.data(), bytes));
  {
    const Registration again = rank.communicator->register_memory(values.data(), bytes);
    CHECK(rank.both(2, values.data(), bytes));
  }
  CHECK(rank.both(1, values.data(), bytes));
  Registration moved = std::move(first);
  CHECK(moved.data() == values.data());
  CHECK(rank.both(1, values.data(), bytes));
  moved = rank.communicator->register_memory(others.data(), 40);
  CHECK(rank.both(0, values.data(), bytes));
  CHECK(rank.both(1, others.data(), 40));
  rank.communicator.reset();
  CHECK(rank.both(1, others.data(), 40));
  moved = {};
  CHECK(rank.all() == 0);
  CHECK(moved.data() == nullptr);
}

TEST_CASE("operations register nothing by themselves", "[registration]") {
  Rank rank(false);
  const auto sum = [](Communicator& communicator) {
    std::vector<float> values(1000, 1.0f);
    const Buffer buffer{values.data(), values.size(), DType::f32};
    communicator.all_reduce(buffer, buffer, ReduceOp::sum).wait();
    return values.front();
  };
  std::vector<std::future<float>> others;
  for (Communicator& peer : rank.peers)
    others.push_back(std::async(std::launch::async, [&] { return sum(peer); }));
  CHECK(sum(*rank.communicator) == Rank::size);
  for (auto& other : others) CHECK(other.get() == Rank::size);
  CHECK(rank.all() == 0);
}

TEST_CASE("register_memory refuses what is no memory", "[registration]") {
  Rank rank(false);
  std::byte byte{};
  const auto refusal = [&](void* data, std::size_t bytes) {
    try {
      (void)rank.communicator->register_memory(data, bytes);
    } catch (const Error& error) {
      CHECK(error.code() == Errc::invalid_argument);
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  using Catch::Contains;
  CHECK_THAT(refusal(nullptr, 1), Contains("data is null"));
  CHECK_THAT(refusal(&byte, 0), Contains("no bytes"));
  CHECK_THAT(refusal(&byte, SIZE_MAX), Contains("do not fit into the address space"));
  CHECK(rank.all() == 0);
}

}  // namespace rondo::tests
