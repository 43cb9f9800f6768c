// SPDX-License-Identifier: Apache-2.0
//
// Counts what docs/reference/hot-path.md promises. After the first operation of a shape no rank or
// thread of the program allocates.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <vector>

#include "catch.h"
#include "hot_path/attempts.h"
#include "hot_path/counting.h"
#include "lib/connect.h"
#include "support/effort.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

// Shapes as in a training step (a statistic, a parameter, a bucket), and every other collective
// that has a schedule.
struct CallShape {
  Collective operation;
  std::size_t count;
  Priority priority = Priority::bulk;
  std::optional<double> input_scale{};
};

constexpr CallShape shapes[] = {
    {Collective::all_reduce, 1},
    {Collective::all_reduce, 1000, Priority::urgent},
    {Collective::all_reduce, 300'000},
    {Collective::all_reduce, 10, Priority::bulk, 0.5},
    {Collective::all_reduce, 300'000, Priority::bulk, 0.5},
    {Collective::reduce_scatter, 20'000},
    {Collective::all_gather, 20'000},
    {Collective::broadcast, 100'000},
    {Collective::reduce, 100'000},
    {Collective::barrier, 0},
    {Collective::gather, 20'000},
    {Collective::scatter, 20'000},
    {Collective::all_to_all, 60'000},
    {Collective::all_gather_v, 50'000},
    {Collective::reduce_scatter_v, 50'000},
};

class Caller {
 public:
  explicit Caller(Communicator& communicator)
      : communicator_(communicator),
        size_(static_cast<std::size_t>(communicator.size())),
        rank_(static_cast<std::size_t>(communicator.rank())),
        in_(300'000, 1.0F),
        out_(300'000),
        counts_(size_) {}

  Work start(const CallShape& shape) {
    OpOptions options;
    options.priority = shape.priority;
    options.input_scale = shape.input_scale;
    const Buffer in = buffer(in_, shape.count), out = buffer(out_, shape.count);
    switch (shape.operation) {
      case Collective::all_reduce:
        return communicator_.all_reduce(in, out, ReduceOp::sum, options);
      case Collective::reduce:
        return communicator_.reduce(in, out, ReduceOp::sum, 1, options);
      case Collective::broadcast:
        return communicator_.broadcast(in, out, 1, options);
      case Collective::all_gather:
        return communicator_.all_gather(in, buffer(out_, shape.count * size_), options);
      case Collective::reduce_scatter:
        return communicator_.reduce_scatter(buffer(in_, shape.count * size_), out, ReduceOp::sum,
                                            options);
      case Collective::barrier:
        return communicator_.barrier(options);
      case Collective::gather:
        return communicator_.gather(in, buffer(out_, shape.count * size_), 1, options);
      case Collective::scatter:
        return communicator_.scatter(buffer(in_, shape.count * size_), out, 1, options);
      case Collective::all_to_all:
        return communicator_.all_to_all(in, out, options);
      case Collective::all_gather_v:
        cut(shape.count);
        return communicator_.all_gather_v(buffer(in_, counts_[rank_]), out, counts_, options);
      case Collective::reduce_scatter_v:
        cut(shape.count);
        return communicator_.reduce_scatter_v(in, buffer(out_, counts_[rank_]), counts_,
                                              ReduceOp::sum, options);
      default:
        break;
    }
    return {};
  }

 private:
  static Buffer buffer(std::vector<float>& memory, std::size_t count) {
    return {memory.data(), count, DType::f32};
  }

  // One block is empty, the last one the largest.
  void cut(std::size_t count) {
    std::fill(counts_.begin(), counts_.end(), count / size_ / 2);
    counts_.front() = 0;
    counts_.back() += count - std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
  }

  Communicator& communicator_;
  std::size_t size_, rank_;
  std::vector<float> in_, out_;
  std::vector<std::size_t> counts_;
};

Setup setup_of(Over over, int size) {
  Setup setup;
  setup.over = over;
  setup.size = size;
  return setup;
}

}  // namespace

TEST_CASE("the counter counts") {
  const std::uint64_t before = allocations();
  int* volatile one = new int(1);  // without volatile the compiler may leave out the allocation
  void* volatile other = std::malloc(1);
  delete one;
  std::free(other);
  CHECK(allocations() == before + 2);
}

namespace {

// effort: in percent of the usual repetitions.
void check_allocations(Over over, int size, int effort) {
  for (const CallShape& shape : shapes) {
    const int repeats = (shape.count >= 100'000 ? 200 : 1000) * effort / 100;
    Attempts attempts(size);
    run_communicators(setup_of(over, size), "hot path", [&](Communicator& c, int rank) {
      Caller caller(c);
      caller.start(shape).wait();
      attempts.run(rank, repeats, [&] { caller.start(shape).wait(); });
    });
    INFO(name_of(over) << ", " << size << " ranks, " << name_of(shape.operation) << " of "
                       << shape.count << " f32");
    CHECK(attempts.least() == 0);
  }
}

}  // namespace

TEST_CASE("nothing is allocated after the first operation of a shape") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const int size = GENERATE(2, 3, 4);
  check_allocations(over, size, whole_set() ? 100 : 20);
}

// Needs a device: tests/vm runs it in a guest, which is slow.
TEST_CASE("nothing is allocated over rdma after the first operation of a shape", "[.rdma]") {
  check_allocations(Over::rdma, 2, 5);
}

TEST_CASE(
    "nothing is allocated while several operations of both lanes are under way, waited for or "
    "not") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const auto hosts = GENERATE(std::vector<int>{}, std::vector{0, 1, 0}, std::vector{0, 1, 1});
  const bool two_hosts = !hosts.empty();
  if (two_hosts && over != Over::mem) return;
  constexpr std::size_t together = std::size(shapes);
  Attempts attempts(3);
  Setup setup = setup_of(over, 3);
  if (two_hosts) {  // two of the ranks share memory, with the root or without
    setup.hosts = hosts;
    setup.faults.windows = true;
    setup.options.algorithm = "two_level";
  }
  run_communicators(setup, "hot path", [&](Communicator& c, int rank) {
    Caller caller(c);
    Work works[together];
    const auto round = [&] {
      for (std::size_t i = 0; i < together; ++i) works[i] = caller.start(shapes[i]);
      works[1].wait();
      for (Work& work : works) work.wait();
      for (Work& work : works) work = Work();
    };
    for (int i = 0; i < 5; ++i) round();
    attempts.run(rank, 100, round);
  });
  INFO(name_of(over) << (two_hosts ? ", two hosts" : ""));
  CHECK(attempts.least() == 0);
}

TEST_CASE("nothing is allocated for small calls in a row") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  Attempts attempts(2);
  run_communicators(setup_of(over, 2), "row", [&](Communicator& c, int rank) {
    std::vector<float> values(300);
    std::vector<Work> works(values.size() / 2);
    const auto row = [&] {
      for (std::size_t i = 0; i < works.size(); ++i) {
        const Buffer both{values.data() + 2 * i, 2, DType::f32};
        works[i] = c.all_reduce(both, both, ReduceOp::sum);
      }
      for (Work& work : works) work.wait();
    };
    for (int i = 0; i < 3; ++i) row();
    attempts.run(rank, 20, row);
  });
  INFO(name_of(over));
  CHECK(attempts.least() == 0);
}

TEST_CASE("nothing is allocated while a hundred handles of operations that have ended are held") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  Attempts attempts(2);
  run_communicators(setup_of(over, 2), "held handles", [&](Communicator& c, int rank) {
    Caller caller(c);
    std::vector<Work> held(100);
    for (Work& work : held) {
      work = caller.start(shapes[0]);
      work.wait();
    }
    for (int i = 0; i < 10; ++i) caller.start(shapes[0]).wait();
    attempts.run(rank, 1000, [&] { caller.start(shapes[0]).wait(); });
  });
  INFO(name_of(over));
  CHECK(attempts.least() == 0);
}

TEST_CASE("nothing is allocated on connections whose frames have tags") {
  const base::Protection protection =
      GENERATE(base::Protection::headers, base::Protection::payload);
  const int connections = GENERATE(1, 2);
  constexpr std::size_t together = std::size(shapes);
  Attempts attempts(3);
  MemoryStore store;
  const auto with_tags = [&](rendezvous::Place place, const Options& own) {
    place.protect_all = true;  // as between hosts
    place.between_hosts = protection;
    return lib::default_transports()(place, own);
  };
  run_ranks(3, "hot path with tags", [&](int rank) {
    Options options = setup_of(Over::tcp, 3).options;
    options.rank = rank;
    options.size = 3;
    options.store = &store;
    options.transports = {"tcp"};
    options.connections = connections;
    Communicator c = lib::connect_with(options, with_tags);
    Caller caller(c);
    Work works[together];
    const auto round = [&] {
      for (std::size_t i = 0; i < together; ++i) works[i] = caller.start(shapes[i]);
      for (Work& work : works) work.wait();
      for (Work& work : works) work = Work();
    };
    for (int i = 0; i < 5; ++i) round();
    attempts.run(rank, 100, round);
  });
  INFO((protection == base::Protection::payload ? "payload" : "headers")
       << ", " << connections << " connections");
  CHECK(attempts.least() == 0);
}

TEST_CASE(
    "nothing is allocated for messages, once there has been room for those that came too early") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  Attempts attempts(3);
  run_communicators(setup_of(over, 3), "messages", [&](Communicator& c, int rank) {
    const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
    std::vector<float> out(300'000), in(300'000);
    constexpr std::size_t counts[] = {2, 50, 3000, 16'000, 300'000};
    // A rank may be up to two calls ahead of the next one, whose receives it does not wait for. So
    // several messages of a size may come too early. The first rounds make room for them: the
    // message that was sent last is received first.
    constexpr std::uint32_t most_early = 4;
    const auto round = [&](bool early) {
      for (const std::size_t count : counts) {
        const Buffer from{out.data(), count, DType::f32}, to{in.data(), count, DType::f32};
        if (early) {
          std::array<Work, most_early + 1> sends;
          for (std::uint32_t i = 0; i <= most_early; ++i) sends[i] = c.send(from, next, 3 + i);
          for (std::uint32_t i = most_early + 1; i-- > 0;) c.receive(to, previous, 3 + i).wait();
          for (Work& send : sends) send.wait();
        }
        const Transfer both[] = {{Transfer::Kind::send, from, next, 1},
                                 {Transfer::Kind::receive, to, previous, 1}};
        c.batch(both).wait();
        // From any rank. A message that comes before its receive finds room, too.
        Work receiving = c.receive_any(to, 2);
        c.send(from, next, 2).wait();
        receiving.wait();
      }
    };
    for (int i = 0; i < 5; ++i) round(true);
    attempts.run(rank, 200, [&] { round(false); });
  });
  INFO(name_of(over));
  CHECK(attempts.least() == 0);
}

}  // namespace rondo::testing
