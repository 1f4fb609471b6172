package scheduling

// imageLocality favours nodes that already have the pod's images, the larger they are the more.
type imageLocality struct{}

// Images whose sum is below the first size score 0; above the second, per image, they score no higher.
const (
	smallestImages int64 = 23 << 20
	largestImage   int64 = 1000 << 20
)

func (imageLocality) Name() string { return ImageLocality }

func (imageLocality) EventsToRegister() []EventWithHint { return nil }

func (imageLocality) PreScore(pod *Pod, s *Snapshot, _ []*Node) (Scorer, *Status) {
	scorer := &imageScorer{most: largestImage * int64(len(pod.Images))}
	for _, image := range pod.Images {
		if spread := s.images[image]; spread.Nodes > 0 {
			// An image that few nodes have counts for less, lest these nodes get all pods that use it.
			share := float64(spread.Nodes) / float64(len(s.nodes))
			scorer.images = append(scorer.images, imageWorth{image, int64(float64(spread.Size) * share)})
		}
	}
	if len(scorer.images) == 0 {
		return nil, nil
	}
	return scorer, nil
}

type imageScorer struct {
	images []imageWorth
	most   int64
}

type imageWorth struct {
	name  string
	worth int64
}

func (*imageScorer) Local() bool { return false }

func (s *imageScorer) Score(nodes []*Node, scores []int64) {
	for i, n := range nodes {
		var sum int64
		for _, image := range s.images {
			if _, has := n.Images[image.name]; has {
				sum += image.worth
			}
		}
		sum = max(smallestImages, min(sum, s.most))
		scores[i] = MaxScore * (sum - smallestImages) / (s.most - smallestImages)
	}
}

func (*imageScorer) Normalize([]*Node, []int64) {}
