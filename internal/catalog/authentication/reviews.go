package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"

	"skiff/internal/catalog"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{SelfSubjectReview, TokenReview}
}

var SelfSubjectReview = catalog.Resource[authenticationv1.SelfSubjectReview]{
	Group: "authentication.k8s.io", Version: "v1", Kind: "SelfSubjectReview", Plural: "selfsubjectreviews",
	Virtual: true, Verbs: []string{"create"},
	Complete: true,
}

var TokenReview = catalog.Resource[authenticationv1.TokenReview]{
	Group: "authentication.k8s.io", Version: "v1", Kind: "TokenReview", Plural: "tokenreviews",
	Virtual: true, Verbs: []string{"create"},
	Complete: true,
}
