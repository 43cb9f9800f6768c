// SPDX-License-Identifier: Apache-2.0
//
// Tests the direct algorithms on shared memory: every operation, with buffers in windows,
// elsewhere, and mixed.
#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <string>

#include "catch.h"
#include "cluster.h"
#include "collectives/direct/area.h"
#include "support/effort.h"
#include "support/ranks.h"

using namespace rondo;
using rondo::testing::expect;
using rondo::testing::run_ranks;

namespace {

constexpr Collective all_direct[] = {
    Collective::all_reduce,     Collective::reduce,          Collective::broadcast,
    Collective::all_gather,     Collective::gather,          Collective::scatter,
    Collective::reduce_scatter, Collective::barrier,         Collective::all_to_all,
    Collective::all_gather_v,   Collective::reduce_scatter_v};

enum class Where { elsewhere, windows, mixed };

mem::MemFaults with_windows() {
  mem::MemFaults faults;
  faults.windows = true;
  return faults;
}

// Hears of failures and gives no verdict, as while the control plane has not answered yet.
struct Silent : engine::EngineObserver {
  void failure(const operation::Failure&) override {}
  void stalled(Priority, std::uint64_t) override {}
  void slow(Priority, std::uint64_t, nanoseconds) override {}
  void late(const operation::LateReport&) override {}
  void deadline(Priority, std::uint64_t, nanoseconds, const std::string&) override {}
};

// Elements of f32, in a window or not.
class Floats {
 public:
  Floats(transports::Transport& transport, bool window, std::size_t count, float value) {
    if (window && count != 0) allocation_ = transport.allocate(count * sizeof(float));
    if (!allocation_) own_.resize(count);
    std::fill_n(data(), count, value);
  }
  float* data() {
    return allocation_ ? reinterpret_cast<float*>(allocation_->memory().data()) : own_.data();
  }

 private:
  std::unique_ptr<transports::Allocation> allocation_;
  std::vector<float> own_;
};

// Element i of a rank's input. Sums over ranks are exact.
float given(int rank, std::size_t i) {
  return static_cast<float>(i % 97) + static_cast<float>(rank);
}

class Caller {
 public:
  Caller(Cluster& cluster, int rank, int size, Where where)
      : cluster_(cluster),
        rank_(static_cast<std::size_t>(rank)),
        size_(static_cast<std::size_t>(size)),
        where_(where) {}

  void run(Collective operation, std::size_t count, int root, bool in_place, Priority lane) {
    const Collective plain = schedules::without_counts(operation);
    const bool is_root = root == static_cast<int>(rank_);
    counts_.assign(size_, count);
    if (schedules::has_counts(operation))
      for (std::size_t rank = 0; rank < size_; ++rank) counts_[rank] = count * (rank % 3) / 2;
    offsets_.assign(1, 0);
    for (const std::size_t one : counts_) offsets_.push_back(offsets_.back() + one);
    const std::size_t all = offsets_.back(), own = counts_[rank_], before = offsets_[rank_];
    const bool all_in = plain == Collective::reduce_scatter || plain == Collective::scatter ||
                        plain == Collective::all_to_all;
    const bool all_out = plain == Collective::all_gather || plain == Collective::gather ||
                         plain == Collective::all_to_all;
    const std::size_t in_count = all_in ? all : own, out_count = all_out ? all : own;
    const bool window =
        where_ == Where::windows || (where_ == Where::mixed && (rank_ + count) % 2 == 0);
    transports::Transport& transport = cluster_.transport(static_cast<int>(rank_));
    Floats out(transport, window, in_place ? std::max(in_count, out_count) : out_count, -1);
    Floats apart(transport, window != (where_ == Where::mixed), in_count, 0);
    const bool in_is_block = all_out && !all_in;
    float* const in = !in_place ? apart.data() : out.data() + (in_is_block ? before : 0);
    float* const to = in_place && all_in && !all_out ? out.data() + before : out.data();
    for (std::size_t i = 0; i < in_count; ++i) in[i] = given(static_cast<int>(rank_), i);
    const bool rooted_in = plain == Collective::broadcast || plain == Collective::scatter;
    const bool rooted_out = plain == Collective::reduce || plain == Collective::gather;
    const bool reads = !rooted_in || is_root, writes = !rooted_out || is_root;
    schedules::Call call;
    const std::size_t number =
        plain == Collective::all_to_all || schedules::has_counts(operation) ? all : count;
    call.signature = {operation,
                      DType::f32,
                      ReduceOp::sum,
                      schedules::Algorithm::direct,
                      static_cast<std::uint32_t>(root),
                      number,
                      1.0,
                      0};
    if (schedules::has_counts(operation)) call.counts = counts_;
    call.in = reinterpret_cast<const std::byte*>(reads ? in : nullptr);
    call.out = reinterpret_cast<std::byte*>(writes ? to : nullptr);
    call.in_bytes = reads ? in_count * sizeof(float) : 0;
    call.out_bytes = writes ? out_count * sizeof(float) : 0;
    call.priority = lane;
    call.time_limit = std::chrono::seconds{60};
    Work(cluster_[static_cast<int>(rank_)].start(call)).wait();
    if (!writes) return;
    for (std::size_t i = 0; i < out_count; ++i)
      if (to[i] != wanted(plain, root, i))
        expect(false, std::string(name_of(operation)) + " of " + std::to_string(count) + ", root " +
                          std::to_string(root) + ": element " + std::to_string(i) + " is " +
                          std::to_string(to[i]));
  }

 private:
  float wanted(Collective plain, int root, std::size_t i) const {
    if (plain == Collective::broadcast) return given(root, i);
    if (plain == Collective::scatter) return given(root, offsets_[rank_] + i);
    if (plain == Collective::all_gather || plain == Collective::gather ||
        plain == Collective::all_to_all) {
      std::size_t from = 0;
      while (offsets_[from + 1] <= i) ++from;
      return given(static_cast<int>(from),
                   i - offsets_[from] + (plain == Collective::all_to_all ? offsets_[rank_] : 0));
    }
    const std::size_t place = plain == Collective::reduce_scatter ? offsets_[rank_] + i : i;
    float sum = 0;
    for (int rank = 0; rank < static_cast<int>(size_); ++rank) sum += given(rank, place);
    return sum;
  }

  std::vector<std::size_t> counts_, offsets_;  // offsets_: of the blocks, and their end
  Cluster& cluster_;
  std::size_t rank_, size_;
  Where where_;
};

}  // namespace

TEST_CASE("direct algorithms give the right values wherever the buffers are") {
  const int size = GENERATE(2, 3, 4, 7);
  const Where where = GENERATE(Where::elsewhere, Where::windows, Where::mixed);
  if (testing::few_cases() && size == 4) return;
  Cluster cluster(size, with_windows());
  REQUIRE(cluster[0].has_direct());
  const auto n = static_cast<std::size_t>(size);
  CHECK_NOTHROW(run_ranks(size, "direct", [&](int rank) {
    Caller caller(cluster, rank, size, where);
    int turn = 0;
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, n - 1, n + 1, std::size_t{1000}, std::size_t{5000},
          std::size_t{testing::few_cases() ? 20'001u : 70'001u},
          std::size_t{testing::few_cases() ? 350'003u : 1'300'003u} / n})
      for (const bool in_place : {false, true})
        for (const Collective operation : all_direct) {
          if (operation == Collective::barrier && count != 0) continue;
          const int root = ++turn % size;
          caller.run(operation, count, root, in_place,
                     turn % 3 == 0 ? Priority::urgent : Priority::bulk);
        }
  }));
}

TEST_CASE("direct operations that are started together end in order with the right values") {
  constexpr int size = 3;
  Cluster cluster(size, with_windows());
  CHECK_NOTHROW(run_ranks(size, "many", [&](int rank) {
    std::vector<std::vector<float>> in, out;
    std::vector<Work> works;
    for (std::size_t i = 0; i < 40; ++i) {
      const std::size_t count = i % 4 == 0 ? 200'000 : 1 + i;
      in.emplace_back(count, static_cast<float>(rank + 1));
      out.emplace_back(count, -1.0F);
    }
    for (std::size_t i = 0; i < in.size(); ++i) {
      schedules::Call call =
          make_call(Collective::all_reduce,
                    i % 5 == 4 ? schedules::Algorithm::ring : schedules::Algorithm::direct, in[i],
                    out[i], in[i].size());
      call.segment_elements = 4096;
      works.emplace_back(cluster[rank].start(call));
    }
    for (Work& work : works) work.wait();
    for (const auto& values : out)
      expect(values == std::vector<float>(values.size(), 6), "a sum is wrong");
  }));
}

// Small all-reduces in a row, all started before the first is waited for. `mixed`: values of every
// ring and buffers with chunks, barriers and broadcasts among them, in both lanes.
class Row {
 public:
  Row(Cluster& cluster, int rank, int size, std::size_t calls, bool mixed)
      : engine_(cluster[rank]), rank_(rank), size_(size), mixed_(mixed), in_(calls), out_(calls) {}

  void run() {
    std::vector<Work> works;
    for (std::size_t i = 0; i < in_.size(); ++i) works.push_back(start(i));
    for (Work& work : works) work.wait();
    for (std::size_t i = 0; i < in_.size(); ++i) {
      const float last = static_cast<float>(i);
      const float sum =
          static_cast<float>(size_ * (size_ - 1) / 2) + static_cast<float>(size_) * last;
      const float wanted = broadcasts(i) ? last + static_cast<float>(i % 2) : sum;
      if (!waits_only(i))
        expect(out_[i] == std::vector<float>(count(i), wanted), "call " + std::to_string(i));
    }
  }

 private:
  std::size_t count(std::size_t i) const {
    if (!mixed_) return 2;
    return i % 37 == 36 ? 40'000 : std::array<std::size_t, 5>{2, 13, 200, 1, 3000}[i % 5];
  }
  bool broadcasts(std::size_t i) const { return mixed_ && i % 7 == 3; }
  bool waits_only(std::size_t i) const { return mixed_ && i % 11 == 5 && !broadcasts(i); }

  Work start(std::size_t i) {
    in_[i].assign(count(i), static_cast<float>(rank_) + static_cast<float>(i));
    out_[i].assign(count(i), -1);
    const int root = static_cast<int>(i % 2);
    const Collective operation = broadcasts(i)   ? Collective::broadcast
                                 : waits_only(i) ? Collective::barrier
                                                 : Collective::all_reduce;
    schedules::Call call = make_call(operation, schedules::Algorithm::direct, in_[i], out_[i],
                                     waits_only(i) ? 0 : count(i), broadcasts(i) ? root : 0);
    if (broadcasts(i) && root != rank_) call.in = nullptr, call.in_bytes = 0;
    if (mixed_ && i % 3 == 1) call.priority = Priority::urgent;
    call.time_limit = std::chrono::seconds{60};
    return Work(engine_.start(call));
  }

  engine::Engine& engine_;
  int rank_, size_;
  bool mixed_;
  std::vector<std::vector<float>> in_, out_;
};

TEST_CASE("small direct calls in a row give the right values") {
  const int size = GENERATE(2, 4);
  const std::size_t calls = GENERATE(as<std::size_t>{}, 64, 1000);
  const bool mixed = GENERATE(false, true);
  Cluster cluster(size, with_windows());
  CHECK_NOTHROW(run_ranks(size, "row", [&](int rank) {
    for (int turn = 0; turn < 3; ++turn) Row(cluster, rank, size, calls, mixed).run();
  }));
}

// Rank 1 calls nothing meanwhile.
TEST_CASE("64 direct calls are posted before the first is answered, and no more") {
  Cluster cluster(2, with_windows());
  const Priority lane = GENERATE(Priority::bulk, Priority::urgent);
  std::vector<float> in(1, 1);
  std::vector<std::vector<float>> outs(2 * 70, std::vector<float>(1));
  std::vector<Work> works;
  const auto start = [&](int rank) {
    schedules::Call call =
        make_call(Collective::all_reduce, schedules::Algorithm::direct, in, outs[works.size()], 1);
    call.priority = lane;
    works.emplace_back(cluster[rank].start(call));
  };
  for (int i = 0; i < 70; ++i) start(0);
  const direct::DirectArea area(cluster.transport(0).windows()->area(0), direct::DirectUse::all,
                                lane);
  for (std::uint64_t sequence = 1; sequence <= 70; ++sequence)
    CHECK(area.post(sequence).sequence == (sequence <= 64 ? sequence : 0));
  for (int i = 0; i < 70; ++i) start(1);
  for (Work& work : works) CHECK_NOTHROW(work.wait());
  for (const auto& out : outs) CHECK(out[0] == 2);
}

TEST_CASE("a direct call in a row that differs is reported with its number") {
  std::vector<float> in(20, 1);
  std::vector<std::vector<float>> outs(2 * 64, std::vector<float>(20));
  Cluster cluster(2, with_windows());
  std::vector<Work> works[2];
  for (const int rank : {0, 1})
    for (std::size_t i = 0; i < 64; ++i)
      works[rank].emplace_back(cluster[rank].start(make_call(
          Collective::all_reduce, schedules::Algorithm::direct, in,
          outs[static_cast<std::size_t>(rank) * 64 + i], rank == 1 && i == 39 ? 20 : 10)));
  for (std::size_t i = 0; i < 64; ++i) {
    std::string message;
    try {
      works[1][i].wait();
    } catch (const Error& error) {
      message = error.what();
      CHECK(error.code() == Errc::mismatch);
    }
    INFO(i << ": " << message);
    CHECK(message.empty() == (i < 39));
    if (i >= 39)
      CHECK(message.find("rank 0 called all_reduce #40 (10 f32 sum) where rank 1 called all_reduce "
                         "#40 (20 f32 sum)") != std::string::npos);
  }
}

TEST_CASE("different direct calls are a mismatch that names both") {
  const bool roots = GENERATE(false, true);
  std::vector<float> a(10, 1), b(20, 1), out(20);
  Cluster cluster(2, with_windows());
  const Collective operation = roots ? Collective::broadcast : Collective::all_reduce;
  Work first(cluster[0].start(make_call(operation, schedules::Algorithm::direct, a, out, 10)));
  Work second(cluster[1].start(
      make_call(operation, schedules::Algorithm::direct, b, b, roots ? 10 : 20, roots ? 1 : 0)));
  std::string message;
  try {
    second.wait();
  } catch (const Error& error) {
    message = error.what();
    CHECK(error.code() == Errc::mismatch);
  }
  CHECK_THAT(message,
             Catch::Contains(roots ? "rank 0 called broadcast #1 (10 f32, root 0) where rank 1 "
                                     "called broadcast #1 (10 f32, root 1)"
                                   : "rank 0 called all_reduce #1 (10 f32 sum) where rank 1 called "
                                     "all_reduce #1 (20 f32 sum)"));
}

// A callback holds rank 1 while rank 0 has all that it needs. The input of rank 0 must stay until
// rank 1 has read it.
TEST_CASE("a direct call on windows ends when everybody has read this rank's input") {
  std::promise<void> held, go;  // outlive the thread that runs the callback
  Cluster cluster(2, with_windows());
  constexpr std::size_t count = 200'000;
  std::vector<std::unique_ptr<transports::Allocation>> memory;
  const auto floats = [&](int rank, std::size_t elements) {
    memory.push_back(cluster.transport(rank).allocate(elements * sizeof(float)));
    return reinterpret_cast<std::byte*>(memory.back()->memory().data());
  };
  std::vector<float> none;
  const auto gather = [&](int rank) {
    schedules::Call call =
        make_call(Collective::all_gather, schedules::Algorithm::direct, none, none, count);
    call.in_bytes = count * sizeof(float);
    call.out_bytes = 2 * call.in_bytes;
    call.in = floats(rank, count);
    call.out = floats(rank, 2 * count);
    return call;
  };
  const schedules::Call calls[] = {gather(0), gather(1)};
  const auto barrier = [&](int rank) {
    return Work(cluster[rank].start(
        make_call(Collective::barrier, schedules::Algorithm::direct, none, none, 0)));
  };
  Work before1 = barrier(1);
  before1.on_done([&](std::error_code) {
    held.set_value();
    go.get_future().wait();
  });
  Work mine1(cluster[1].start(calls[1]));
  Work before0 = barrier(0);
  held.get_future().wait();
  Work mine0(cluster[0].start(calls[0]));
  const bool early = mine0.wait_for(std::chrono::milliseconds{50});
  Work behind0 = barrier(0);
  const std::vector<operation::Record> seen = cluster[0].snapshot().records;
  go.set_value();
  Work behind1 = barrier(1);
  CHECK(seen.at(0).state == operation::RecordState::ranks);
  CHECK(seen.at(1).state == operation::RecordState::moving);
  CHECK_FALSE(early);
  CHECK_NOTHROW(mine0.wait());
  CHECK_NOTHROW(mine1.wait());
  CHECK_NOTHROW(before0.wait());
  CHECK_NOTHROW(behind0.wait());
  CHECK_NOTHROW(behind1.wait());
}

// DirectLane keeps the hash and the details of one call for the next.
TEST_CASE(
    "a direct call that differs from the equal ones before it is a mismatch that names both") {
  std::vector<float> a(20, 1), b(20, 1), out(20);
  Cluster cluster(2, with_windows());
  const auto call = [](std::vector<float>& in, std::vector<float>& to, std::size_t count) {
    return make_call(Collective::all_reduce, schedules::Algorithm::direct, in, to, count);
  };
  for (int turn = 0; turn < 2; ++turn)
    CHECK_NOTHROW(run_ranks(2, "equal", [&](int rank) {
      std::vector<float>& own = rank == 0 ? a : b;
      Work(cluster[rank].start(call(own, own, 20))).wait();
    }));
  Work first(cluster[0].start(call(a, out, 10)));
  Work second(cluster[1].start(call(b, b, 20)));
  std::string message;
  try {
    second.wait();
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.find("rank 0 called all_reduce #3 (10 f32 sum) where rank 1 called all_reduce #3 "
                     "(20 f32 sum)") != std::string::npos);
}

TEST_CASE("a rank that has reported a failure posts nothing more") {
  Silent silent;
  std::vector<float> in(10, 1), out(10);
  Cluster cluster(2, with_windows(), false, false, &silent);
  cluster[0].abort({Errc::aborted, "rank 0 called abort"});
  Work other(
      cluster[0].start(make_call(Collective::barrier, schedules::Algorithm::direct, in, out, 0)));
  Work mine(cluster[1].start(
      make_call(Collective::all_reduce, schedules::Algorithm::direct, in, out, 10)));
  INFO(mine.message());
  CHECK_FALSE(mine.wait_for(std::chrono::milliseconds{20}));
  std::string message;
  try {
    other.wait();
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.find("rank 0 called abort") != std::string::npos);
}

// A callback holds rank 0 until both posts of rank 1 are there, one of them for another call. Rank
// 0 then sees both in one pass.
TEST_CASE("a rank that sees a failure finishes nothing more in the same pass") {
  struct Judge final : Silent {
    void failure(const operation::Failure& failure) override { engine->fail(failure); }
    engine::Engine* engine = nullptr;
  } judge;
  std::promise<void> held, go;
  std::vector<float> in(20, 1), out(20);
  Cluster cluster(2, with_windows(), false, false, &judge);
  judge.engine = &cluster[0];
  const auto start = [&](int rank, Collective operation, std::size_t count, Priority lane) {
    schedules::Call call = make_call(operation, schedules::Algorithm::direct, in, out, count);
    call.priority = lane;
    return Work(cluster[rank].start(call));
  };
  Work before0 = start(0, Collective::barrier, 0, Priority::bulk);
  before0.on_done([&](std::error_code) {
    held.set_value();
    go.get_future().wait();
  });
  Work before1 = start(1, Collective::barrier, 0, Priority::bulk);
  held.get_future().wait();
  Work other0 = start(0, Collective::barrier, 0, Priority::bulk);
  Work mine0 = start(0, Collective::all_reduce, 10, Priority::urgent);
  Work other1 = start(1, Collective::barrier, 0, Priority::bulk);
  Work mine1 = start(1, Collective::all_reduce, 20, Priority::urgent);
  go.set_value();
  CHECK_THROWS_AS(mine0.wait(), Error);
  CHECK_THROWS_AS(other0.wait(), Error);
}

TEST_CASE("a rank that never posts is named at the deadline") {
  std::vector<float> in(10, 1), out(10);
  Cluster cluster(3, with_windows());
  schedules::Call call =
      make_call(Collective::all_reduce, schedules::Algorithm::direct, in, out, 10);
  call.time_limit = std::chrono::milliseconds{50};
  Work late(cluster[1].start(call));
  std::string message;
  try {
    late.wait();
  } catch (const Error& error) {
    message = error.what();
    CHECK(error.code() == Errc::deadline_exceeded);
  }
  CHECK(message.find("rank 1 waits for data from rank 0, 2") != std::string::npos);
}

TEST_CASE(
    "reproducible direct sums have the bits of a chain in rank order, wherever the buffers are") {
  constexpr int size = 5;
  const DType type = GENERATE(DType::f32, DType::f16, DType::bf16, DType::f8e4m3);
  const std::size_t count = GENERATE(as<std::size_t>{}, 17, 3000, 150'001);
  const bool window = GENERATE(false, true);
  const ReduceOp op = GENERATE(ReduceOp::sum, ReduceOp::mean);
  Cluster cluster(size, with_windows(), false, true);
  const std::size_t bytes = count * size_of(type);
  CHECK_NOTHROW(run_ranks(size, "reproducible", [&](int rank) {
    std::mt19937 random(static_cast<unsigned>(rank) + 1);
    const auto memory = cluster.transport(rank).allocate(bytes);
    std::vector<std::byte> elsewhere(bytes), chained(bytes);
    std::byte* const in = window ? memory->memory().data() : elsewhere.data();
    // Values of all sizes: the exponent bits are random, but no infinity or NaN comes of them.
    for (std::size_t i = 0; i < bytes; ++i) {
      const auto top = static_cast<std::byte>(random() % 0x30 + 0x20);
      in[i] = i % size_of(type) == size_of(type) - 1 ? top : static_cast<std::byte>(random());
    }
    const auto sum = [&](schedules::Algorithm algorithm, std::byte* out) {
      schedules::Call call;
      call.signature = {Collective::all_reduce, type, op, algorithm, 0, count, 1.0, 0};
      call.in = in;
      call.out = out;
      call.in_bytes = call.out_bytes = bytes;
      call.segment_elements = 1000;
      call.depth = 3;
      call.time_limit = std::chrono::seconds{60};
      Work(cluster[rank].start(call)).wait();
    };
    sum(schedules::Algorithm::chain, chained.data());
    sum(schedules::Algorithm::direct, in);
    expect(std::memcmp(in, chained.data(), bytes) == 0, "the bits differ");
  }));
}

// Rank 0 has done its part and fails while it waits for rank 1, which a callback holds. Then rank 0
// has its buffers back and writes to them.
TEST_CASE("a rank does not end an operation with what a failed rank has written since") {
  constexpr std::size_t count = 20'000;
  std::promise<void> held, go;
  Cluster cluster(2, with_windows());
  Floats in0(cluster.transport(0), true, count, 1), in1(cluster.transport(1), true, count, 1);
  Floats out0(cluster.transport(0), true, count, 0), out1(cluster.transport(1), true, count, 0);
  const auto start = [&](int rank, Collective operation, Floats& in, Floats& out) {
    const std::size_t elements = operation == Collective::barrier ? 0 : count;
    std::vector<float> none;
    schedules::Call call = make_call(operation, schedules::Algorithm::direct, none, none, elements);
    call.in = reinterpret_cast<const std::byte*>(in.data());
    call.out = reinterpret_cast<std::byte*>(out.data());
    call.in_bytes = call.out_bytes = elements * sizeof(float);
    return Work(cluster[rank].start(call));
  };
  Work before1 = start(1, Collective::barrier, in1, out1);
  before1.on_done([&](std::error_code) {
    held.set_value();
    go.get_future().wait();
  });
  Work before0 = start(0, Collective::barrier, in0, out0);
  held.get_future().wait();
  Work mine1 = start(1, Collective::all_reduce, in1, out1);
  Work mine0 = start(0, Collective::all_reduce, in0, out0);
  CHECK_FALSE(mine0.wait_for(std::chrono::milliseconds{20}));
  cluster[0].abort({Errc::aborted, "rank 0 called abort"});
  CHECK_THROWS_AS(mine0.wait(), Error);
  std::fill_n(in0.data(), count, 7.0f);
  go.set_value();
  CHECK_FALSE(mine1.wait_for(std::chrono::milliseconds{50}));
  cluster[1].abort({Errc::aborted, "rank 0 called abort"});
  CHECK_THROWS_AS(mine1.wait(), Error);
}

TEST_CASE("a rank that has ended its operations leaves without spoiling those of others") {
  constexpr std::size_t count = 20'000;
  Cluster cluster(2, with_windows());
  Floats in0(cluster.transport(0), true, count, 1), in1(cluster.transport(1), true, count, 1);
  std::vector<float> none;
  run_ranks(2, "all_reduce", [&](int rank) {
    Floats& in = rank == 0 ? in0 : in1;
    schedules::Call call =
        make_call(Collective::all_reduce, schedules::Algorithm::direct, none, none, count);
    call.in = call.out = reinterpret_cast<std::byte*>(in.data());
    Work(cluster[rank].start(call)).wait();
  });
  cluster[0].stop(base::Clock::now());
  const direct::DirectArea area(cluster.transport(1).windows()->area(0), direct::DirectUse::all,
                                Priority::bulk);
  CHECK(area.control().end.stopped == 0);
}
